"""First calls compile what they did: counted, whatever the load."""

import jax
import pytest

from benchmarks import programs
from jaxsel import _native


@pytest.mark.slow
@pytest.mark.skipif(
    jax.__version__ != programs.recorded()[0] or not _native.available(),
    reason="counts depend on the version of JAX, and on the compiled operations",
)
def test_first_calls_compile_what_is_recorded():
    before = programs.recorded()[1]
    counts = programs.measure()
    assert counts.keys() == before.keys()
    assert not programs.changes(counts, before)


def test_a_fifth_is_the_limit_in_both_directions():
    before = {"omp": (4, 200), "loo": (2, 100)}
    assert not programs.changes({"omp": (9, 240), "loo": (2, 84)}, before)
    more, fewer = programs.changes({"omp": (4, 241), "loo": (2, 83)}, before)
    assert more == "omp: 241 operations in 4 programs, more than 200 recorded"
    assert (
        fewer == "loo: 83 operations in 2 programs, fewer than the stale 100 recorded"
    )
    assert programs.changes({"omp": (4, 200)}, {"omp": (4, 200), "gone": (1, 9)}) == [
        "gone: no such call"
    ]


def test_a_call_that_compiles_more_is_noticed(monkeypatch):
    """Counted in this process, which has compiled none of it."""
    rows, call = programs.calls()["max_shapley"]
    jax.clear_caches()
    alone = programs._count("max_shapley")

    def twice(table):
        call(table)
        return jax.jit(lambda x: (x @ x.T).sum())(table.x)

    monkeypatch.setattr(programs, "calls", lambda: {"max_shapley": (rows, twice)})
    jax.clear_caches()
    more = programs._count("max_shapley")
    assert more[0] == alone[0] + 1
    assert more[1] > alone[1]


def test_another_version_of_jax_is_told(monkeypatch, capsys):
    monkeypatch.setattr(programs, "recorded", lambda: ("0.1.0", {}))
    assert programs.main([]) == 2
    assert "recorded with JAX 0.1.0" in capsys.readouterr().out
