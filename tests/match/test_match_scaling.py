"""Devices, streams and second calls change nothing."""

import dataclasses

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import K, N, P

import jaxsel
from jaxsel import gradients, match


@pytest.mark.parametrize(("score", "positive"), [("omp", True), ("ols", False)])
@pytest.mark.parametrize("n", [N, 37])
@pytest.mark.left_out
def test_eight_devices_equal_one(score, positive, n):
    a, b = cases.pool()
    mesh = jaxsel.make_mesh()
    assert mesh.size == 8
    options = {"score": score, "positive": positive, "penalty": cases.psi()[:n]}
    one = cases.run(a[:n], b, **options)
    cases.same(cases.run(a[:n], b, mesh=mesh, **options), one)


@pytest.mark.slow
def test_several_targets_on_eight_devices():
    a, b = cases.pool()
    targets = np.stack([b, cases.pool(seed=1)[1]])
    mesh = jaxsel.make_mesh()
    cases.same(cases.run(a, targets, mesh=mesh), cases.run(a, targets))


@pytest.mark.parametrize(
    ("score", "positive"),
    [pytest.param("omp", True, marks=pytest.mark.slow), ("ols", False)],
)
@pytest.mark.left_out
def test_streamed_equals_in_memory(score, positive):
    a, b = cases.pool()
    options = {"score": score, "positive": positive, "penalty": cases.psi()}
    options |= {"valid": np.arange(N) % 3 > 0}
    whole = match.omp(a, b, K, **options)
    for chunk_size in (7, 100):
        load = lambda i: gradients.dense(a[i])
        oracle = gradients.streamed(load, N, chunk_size=chunk_size)
        cases.same(match.omp(oracle, b, K, **options), whole)


@pytest.mark.slow
def test_streamed_factors_and_several_targets():
    errors, features = cases.normal(N, 3), cases.normal(N, 5)
    whole = gradients.factored(errors, features)
    load = lambda i: gradients.factored(errors[i], features[i])
    oracle = gradients.streamed(load, N, chunk_size=16)
    weights = np.random.default_rng(0).exponential(size=(2, N)).astype(np.float32)
    both = [whole.combine(row) for row in weights]
    targets = jax.tree.map(lambda *leaves: np.stack(leaves), *both)
    found = match.omp(oracle, targets, K)
    for t, target in enumerate(both):
        cases.same(found[t], match.omp(whole, target, K))


def test_a_mesh_and_a_stream_exclude_each_other():
    a, b = cases.pool()
    oracle = gradients.streamed(lambda i: gradients.dense(a[i]), N, chunk_size=16)
    with pytest.raises(ValueError, match="mesh must be None"):
        match.omp(oracle, b, K, mesh=jaxsel.make_mesh())


@pytest.mark.left_out
def test_second_calls_trace_nothing():
    a, b = cases.pool()
    other, target = cases.pool(seed=1)
    valid = np.arange(N) % 3 > 0
    match.omp(a, b, K)
    with jax.no_tracing(True):
        found = match.omp(
            other, target, K, l2=0.1, tol=0.2, valid=valid, penalty=cases.psi()
        )
    expected = ref.omp(
        other, target, K, l2=0.1, tol=0.2, valid=valid, penalty=cases.psi()
    )
    cases.check_same(found, expected)


def test_sizes_that_are_rounded_up():
    a, b = cases.pool()
    for n in (33, 39):
        found = cases.run(a[:n], b)
        cases.check_form(found, K, n)
        cases.check_same(found, ref.omp(a[:n], b, K))


@pytest.mark.left_out
def test_progress_is_shown_on_demand(capfd, monkeypatch):
    a, b = cases.pool()
    quiet = match.omp(a, b, K)
    assert capfd.readouterr() == ("", "")
    asked = []

    def columns(oracle, js):
        asked.append(len(js))
        return gradients.Oracle.columns(oracle, js)

    monkeypatch.setattr(gradients.Dense, "columns", columns, raising=False)
    loud = match.omp(a, b, K, progress=True)
    assert asked == [1] * int(loud.steps)  # one after the other: nothing is read
    out, err = capfd.readouterr()
    assert out == ""
    assert err != ""
    cases.same(quiet, loud)


@pytest.mark.left_out
def test_the_kernel_inside_jit_and_vmap():
    a, _ = cases.pool()
    targets = np.stack([cases.pool(seed=seed)[1] for seed in range(2)])
    oracle = gradients.dense(a)
    kernel = lambda oracle, b: match.pursue(oracle, b, budget=K)
    together = jax.jit(jax.vmap(kernel, in_axes=(None, 0)))(oracle, targets)
    for t, target in enumerate(targets):
        cases.same(together[t], cases.run(a, target))


def test_results_are_saved_and_loaded(tmp_path):
    found = match.omp(*cases.pool(), K)
    found.save(tmp_path / "match")
    again = match.Match.load(tmp_path / "match.npz")
    cases.same(found, again, tolerance=0)
    assert again.method == found.method
    assert again.reasons == found.reasons


@pytest.mark.left_out
def test_no_global_configuration_is_changed():
    assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]
    match.omp(np.eye(3), np.ones(3), 2)
    assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("score", "positive"), [("omp", True), ("ols", False)])
def test_looking_ahead_reads_a_file_a_few_times(score, positive):
    """Each pass brings 16 columns, most of them of coming choices.

    The 16 best candidates' columns, without looking ahead, take 16 and 19 passes.
    """
    a, b = cases.pool(2000, 200)
    read = []

    def load(rows):
        read.append(len(rows))
        return gradients.dense(a[rows])

    oracle = gradients.streamed(load, len(a), chunk_size=2000)
    found = match.omp(oracle, b, 64, score=score, positive=positive)
    assert int(found.steps) > 48
    passes = read.count(2000)  # two of them for lengths and correlations
    assert passes <= 2 + 64 // 16 + 3
    cases.same(found, match.omp(a, b, 64, score=score, positive=positive))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Columns(gradients.Dense):
    """Gradients as rows, of which matching is told nothing but products."""

    def rows_held(self):
        return None


@cases.each_sign
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("score", ["omp", "nomp"])
@pytest.mark.left_out
def test_rows_are_matched_without_columns(score, several, positive):
    a, b = cases.pool(60, 15)
    target = np.stack([b, a[3] - a[9]]) if several else b
    # In half precision, whose products are summed in float32.
    rows = jnp.asarray(a).astype(jnp.bfloat16)
    options = {"score": score, "positive": positive, "l2": 0.1}
    held = match.omp(gradients.Dense(rows), target, K, **options)
    cases.same(held, match.omp(Columns(rows), target, K, **options))


@pytest.mark.left_out
def test_rows_need_no_memory_for_columns():
    n, k = 1003, 32

    def size(oracle, score):
        kernel = lambda oracle, b: match.pursue(
            oracle, b, budget=k, score=score, positive=False
        )
        compiled = jax.jit(kernel).lower(oracle, jnp.ones(P)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    a = jnp.ones((n, P))
    columns = 4 * n * k
    assert size(gradients.Dense(a), "omp") < columns / 2
    assert size(gradients.Dense(a), "ols") > columns
    assert size(Columns(a), "omp") > columns
