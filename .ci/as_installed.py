"""Try jaxsel as it is installed, as its README says.

    python .ci/as_installed.py [--kernel yes|no]

Run it with the Python of a fresh environment in which jaxsel[data] was installed from
a wheel or an sdist: `make installed` does.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
IMPORT_SECONDS = 0.6
CLOCK = """
import time, jax
start = time.process_time()
import jaxsel
print(time.process_time() - start)
"""


def main() -> None:
    """Try one thing after the other; the first that fails ends it."""
    parser = argparse.ArgumentParser(description="try jaxsel as it is installed")
    parser.add_argument("--kernel", choices=("yes", "no"), help="is it compiled?")
    kernel = parser.parse_args().kernel
    where = python("-W", "error", "-c", "import jaxsel; print(jaxsel.__file__)")
    expect(where.startswith(sys.prefix), f"{where} is imported, not {sys.prefix}")
    example = README.read_text().partition("start:example")[2]
    said = python("-c", example.partition("```python\n")[2].partition("```")[0])
    expect(said, "README's ten lines print nothing")
    help_ = run(str(Path(sys.executable).with_name("jaxsel")), "--help")
    expect("usage: jaxsel" in help_, f"jaxsel --help says {help_}")
    loads = python("-c", "from jaxsel import _native; print(_native.available())")
    compiled = "yes" if loads == "True" else "no"
    expect(kernel in (None, compiled), f"compiled operations load: {compiled}")
    seconds = statistics.median(float(python("-c", CLOCK)) for _ in range(5))
    expect(seconds <= IMPORT_SECONDS, f"import takes {seconds:.2f} s beyond jax")
    jax = python("-c", "import jax; print(jax.__version__)")
    print(f"Python {sys.version.split()[0]}, jax {jax}: {said}")
    print(f"  compiled: {compiled}; import takes {seconds:.2f} s of CPU beyond jax")


def expect(holds: object, otherwise: str) -> None:
    """End the script where something does not hold."""
    if not holds:
        raise SystemExit(otherwise)


def python(*arguments: str) -> str:
    """Run this Python apart from the folder and the environment's variables."""
    return run(sys.executable, "-I", *arguments)


def run(*command: str) -> str:
    """Run a command elsewhere, and return what it prints; its errors end the script."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False
        )
    expect(done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout.strip()


if __name__ == "__main__":
    main()
