"""`run_selection` killed at a random moment, called again: the same rows.

KILLS=20 in the environment tries 20 moments of each phase, which takes 40 minutes.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from parties import needs_spu
from sessions import EXCLUDED, KEEPS, N, config_of
from waits import PATIENCE, until

from jaxsel.proxy import load_proxy, proxy_ranks
from mpc_bridge._journal import FOLDER
from mpc_bridge._party import Party
from mpc_bridge.engines import engine_of

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]
MOMENTS = int(os.environ.get("KILLS", "1"))  # of each phase

CHOOSE = f"""
import json, sys
import numpy as np
from jaxsel.proxy import Prepared, Published, Samples, load_proxy
from mpc_bridge import run_selection

probe, x, output, engine, leak = sys.argv[1:]
proxy = load_proxy(probe)
published = Published(
    n={N}, bootstrap={EXCLUDED}, keeps=({KEEPS[0]},), manifests=(proxy.manifest,)
)
chosen = run_selection(
    Prepared(published=published, proxies=(proxy,)), Samples(features=np.load(x)),
    engine=engine, leak=leak, output=output, batch_size=8, notice=False, timeout=20,
)
print(json.dumps(chosen.indices.tolist()))
"""


class Choosing:
    """A process that chooses in secret, with a temporary folder of its own."""

    def __init__(self, files, folder, engine, leak):
        self.folder, temporary = folder, folder / "temporary"
        temporary.mkdir(exist_ok=True)
        arguments = [files / "probe0", files / "x0.npy", folder / "out", engine, leak]
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHOOSE, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ
            | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(temporary)},
        )

    @property
    def entries(self):
        return len([*(self.folder / "out/data-owner" / FOLDER).glob("*.entry")])

    def kill(self, victim):
        """Kill this process, the group of it and its roles, or one role."""
        if victim == "group":
            os.killpg(self.process.pid, signal.SIGKILL)
        elif victim == "parent":
            self.process.kill()
        else:
            command = ["ps", "-o", "pid=", "--ppid", str(self.process.pid)]
            roles = subprocess.run(command, capture_output=True, text=True)
            for pid in roles.stdout.split()[-1:]:
                os.kill(int(pid), signal.SIGKILL)
        return self.end()

    def end(self):
        out, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, errors


@pytest.fixture(scope="module")
def rows(files):
    proxy, x = load_proxy(files / "probe0"), np.load(files / "x0.npy")
    pool = np.setdiff1d(np.arange(N), EXCLUDED)
    from jaxsel.proxy import Samples

    scores = proxy_ranks(proxy, Samples(features=x[pool]))
    best = np.argsort(-scores, kind="stable")[: KEEPS[0]]
    return [*EXCLUDED, *np.sort(pool[best]).tolist()]


@needs_spu
@pytest.mark.slow
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("phase", ["scoring", "choosing", "result"])
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
def test_a_selection_that_is_killed_goes_on(
    files, tmp_path, rows, engine, phase, moment
):
    draw = random.Random(f"{engine} {phase} {moment}")
    leak, victim = draw.choice(["rank", "set"]), draw.choice(["group", "parent", "one"])
    # Eight batches of 8 rows, in lanes, and then the choice.
    least, most = {"scoring": (0, 5), "choosing": (7, 11), "result": (12, 14)}[phase]
    if leak == "set" and phase != "scoring":
        least = most = 8
    point, pause = draw.randint(least, most), draw.uniform(0, 0.5)
    first = Choosing(files, tmp_path, engine, leak)
    results = [tmp_path / "out" / f"{owner}/result.json" for owner in ("model-owner",)]
    until(
        lambda: (
            first.entries >= point
            or any(path.exists() for path in results)
            or first.process.poll() is not None
        ),
        "its moment",
    )
    time.sleep(pause)
    status, out, errors = first.kill(victim)
    again = Choosing(files, tmp_path, engine, leak)
    code, said, errors = again.end()
    if code and "result.json exists" in errors:  # the first had come to its end
        result = json.loads((tmp_path / "out/model-owner/result.json").read_text())
        assert [*EXCLUDED, *result["rows"]] == rows
        return
    assert code == 0, errors
    assert json.loads(said) == rows
    for owner in ("model-owner", "data-owner"):
        left = sorted(path.name for path in (tmp_path / "out" / owner).iterdir())
        assert left == ["openings.jsonl", "result.json"]
    assert not [*(tmp_path / "temporary").glob("jaxsel-*")]
    del status, out


def test_copies_of_a_session_are_the_same_work(files, tmp_path):
    """No path, time or place of a temporary folder makes it another one."""
    import dataclasses
    import shutil

    def work(folder, role, rank):
        config = config_of(folder, "", engine="spu-aby3")
        part = dataclasses.replace(
            getattr(config, role.replace("-", "_")), output=tmp_path / role
        )
        config = dataclasses.replace(config, **{role.replace("-", "_"): part})
        kind = engine_of("spu-aby3")
        party = Party(role, rank, kind, config, force=False, progress=False)
        party.prepare()
        party.close()
        return party.journal.session, party.commitment

    copy = tmp_path / "copy"
    shutil.copytree(files, copy, ignore=shutil.ignore_patterns("local", "model"))
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    for rank, role in enumerate(("model-owner", "data-owner")):
        assert work(files, role, rank) == work(copy, role, rank)
    x = np.load(copy / "x1.npy")
    x[5, 2] += 2**-20
    np.save(copy / "x1.npy", x)
    first, second = work(files, "data-owner", 1), work(copy, "data-owner", 1)
    assert first[0] != second[0]
    assert first[1] != second[1]
