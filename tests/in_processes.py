"""Run a script in several processes that are one run of JAX."""

import os
import subprocess
import sys
from pathlib import Path

from ports import free_ports
from waits import PATIENCE

TESTS = Path(__file__).parent


def run_script(text, folder, *paths, timeout=2 * PATIENCE, **variables):
    """Run a script, whose argument is a folder, in a process of its own.

    Args:
        text: The script.
        folder: Where it is written, and what it gets.
        paths: What it can import from besides the checkout and the folder of the tests.
        timeout: Seconds.
        variables: Of its environment.
    """
    script = Path(folder, "script.py")
    script.write_text(text)
    given = {"PYTHONPATH": _joined(TESTS.parent, TESTS, *paths), **variables}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def in_processes(script, count, folder, *, timeout=3 * PATIENCE):
    """Run `script PORT COUNT PROCESS FOLDER` in each process, and wait for all.

    Each has two CPU devices. The script's own folder, that of the tests and the
    checkout can be imported from.
    """
    (port,) = free_ports(1)
    given = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    given["PYTHONPATH"] = _joined(TESTS.parent, TESTS, script.parent)
    started = []
    try:
        for process in range(count):
            arguments = map(str, (script, port, count, process, folder))
            # Not pipes: one that is full stops its process, and the others wait for it.
            with Path(folder, f"{process}.txt").open("w") as errors:
                command, env = [sys.executable, *arguments], os.environ | given
                started.append(subprocess.Popen(command, env=env, stderr=errors))
        for number, process in enumerate(started):
            process.wait(timeout=timeout)
            errors = Path(folder, f"{number}.txt").read_text()
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def _joined(*paths):
    return os.pathsep.join(
        [*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
