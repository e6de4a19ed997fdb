"""What every test process has: eight CPU devices, and room for compiled programs."""

import atexit
import collections
import gc
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
import types
import zlib
from pathlib import Path

import jax
import pytest
from jax._src.interpreters import mlir

# Before anything creates a device.
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time: half of it goes to LLVM's optimisations, half of the
# rest to fused loops, a third of what remains to parts of one program that are compiled
# side by side. Give XLA_FLAGS, be it empty, to test the code that users run.
_plain = "--xla_backend_optimization_level=0"
# A worker of xdist inherits what its controller has set, and that is not a user's.
if os.environ.get("XLA_FLAGS", _plain) == _plain:
    os.environ["XLA_FLAGS"] = _plain
    if jax.__version_info__ < (0, 12):  # XLA ends the process at a flag it has not
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
        os.environ["XLA_FLAGS"] += " --xla_cpu_parallel_codegen_split_count=1"
    jax.jit(lambda x: x + 1)(0)  # reads them; SPU's own XLA is older
    os.environ["XLA_FLAGS"] = _plain
os.environ.setdefault("MPLBACKEND", "Agg")

# Nobody reads where an operation of a test's program was written: a tenth of the time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
jax.config.update(
    "jax_traceback_in_locations_limit",
    int(os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"]),
)

# Each lowering makes a context of MLIR, and registers all dialects in it: that took a
# sixth of the suite's time. A thread keeps its own for some, as constants stay in it.
_contexts = threading.local()


def _kept_context(make=mlir.make_ir_context):
    uses = getattr(_contexts, "uses", 0)
    if uses % 500 == 0:
        _contexts.kept = make()
    _contexts.uses = uses + 1
    return _contexts.kept


mlir.make_ir_context = _kept_context

# Workers compile much the same programs: what one has compiled serves the others.
if jax.config.jax_compilation_cache_dir is None:
    _programs = tempfile.mkdtemp(prefix="jaxsel-tests-")
    atexit.register(shutil.rmtree, _programs, ignore_errors=True)
    for _name, _value in (
        ("jax_compilation_cache_dir", _programs),
        ("jax_persistent_cache_min_compile_time_secs", 0.1),
    ):
        os.environ[_name.upper()] = str(_value)
        jax.config.update(_name, _value)

# Traced programs are many small objects: collecting garbage among all of them took a
# twentieth of the time.
gc.set_threshold(20_000)

# A process may have 65,530 mappings; each compiled program takes a few, and XLA crashes
# when there are no more. Two workers that run all tests come near that.
_MANY = 30_000
_TESTS = itertools.count(1)


# GPUs multiply matrices in fewer digits by default. What solves or compares must hold
# there too, and asks for more itself; models do as they are told.
_SOLVERS = {"match", "retrieve", "value"}


@pytest.fixture(autouse=True, scope="module")
def _models_in_float32(request):
    if request.path.parent.name in _SOLVERS:
        yield
    else:
        with jax.default_matmul_precision("highest"):
            yield


def pytest_addoption(parser):
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="K",
        help="run one in K of the tests that are slow or left out: others every day",
    )


@pytest.hookimpl(tryfirst=True)  # before cases are deselected by their marks
def pytest_collection_modifyitems(config, items):
    """Mark the cases that `every` leaves out, and deselect those beyond `--one-in`."""
    seen = collections.Counter()
    for item in items:
        mark = item.get_closest_marker("every")
        if mark is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                item.add_marker("left_out")
            seen[test] += 1
    one_in = config.getoption("one_in")
    if one_in > 1:
        day = _day(config.rootpath)
        drawn = {True: [], False: []}
        for item in items:
            test = item.nodeid.partition("[")[0]
            costly = any(item.get_closest_marker(m) for m in ("slow", "left_out"))
            runs = not costly or zlib.crc32((day + test).encode()) % one_in == 0
            drawn[runs].append(item)
        config.hook.pytest_deselected(items=drawn[False])
        items[:] = drawn[True]


def _day(folder):
    """Return the date of the checked-out commit, or "" outside a clone."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%cs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _room_for_programs():
    yield
    maps = Path("/proc/self/maps")
    # To count them takes milliseconds.
    if (
        next(_TESTS) % 16 == 0
        and maps.exists()
        and maps.read_bytes().count(b"\n") > _MANY
    ):
        jax.clear_caches()


@pytest.fixture
def steps_of(monkeypatch):
    """Return a list of how many steps the loops of a module take: at most 100.

    Call what has the loop without `jit`; loops within loops don't count. It fails where
    it would hang otherwise.
    """
    taken = []

    def while_loop(going, step, start):
        more = lambda carry: going(carry[0]) & (carry[1] < 100)
        next_ = lambda carry: (step(carry[0]), carry[1] + 1)
        end, steps = jax.lax.while_loop(more, next_, (start, 0))
        if not isinstance(steps, jax.core.Tracer):
            taken.append(int(steps))
        return end

    def steps_of(module):
        if hasattr(module, "while_loop"):
            monkeypatch.setattr(module, "while_loop", while_loop)
        else:
            names = vars(jax.lax) | {"while_loop": while_loop}
            monkeypatch.setattr(module, "lax", types.SimpleNamespace(**names))
        return taken

    return steps_of
