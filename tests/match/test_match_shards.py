"""Candidates that lie on the devices of a mesh stay there, and change nothing."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
from jax.sharding import AxisType
from match_cases import K

import jaxsel
from jaxsel import gradients, match
from jaxsel.match import (
    _compute,
    _facility,
    _herding,
    _inputs,
    _log_det,
    _resident,
)

N, P, D = 48, 20, 8
LAYOUTS = {
    "as they are split": jax.P("rows"),
    "over all devices": jax.P(("rows", "columns")),
    "over the other axis": jax.P("columns"),
    "by columns": jax.P(None, "columns"),
    "everywhere": jax.P(),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def mesh_of(kind=AxisType.Explicit):
    return jax.make_mesh((2, 4), ("columns", "rows"), axis_types=(kind, kind))


def put(array, layout="as they are split", kind=AxisType.Explicit):
    spec = LAYOUTS[layout]
    spec = jax.P(*spec[: np.ndim(array)])
    return jax.device_put(array, jax.NamedSharding(mesh_of(kind), spec))


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """Fail where as many numbers as the candidates have come to the host at once."""

    def guard(real):
        def few(tree):
            for leaf in jax.tree.leaves(tree):
                spread = isinstance(leaf, jax.Array) and leaf.ndim > 1
                spread = spread and len(leaf.sharding.device_set) > 1
                assert not spread or leaf.shape[0] < 16, "candidates must stay"
            return real(tree)

        return few

    for module in (_resident, _inputs):
        monkeypatch.setattr(module, "whole", guard(module.whole))
    for module in (_resident, _facility, _herding, _log_det):
        monkeypatch.setattr(module, "gather", guard(module.gather))


def shared(**given):
    return {"mesh": mesh_of(), "axis": "rows"} | given


@pytest.mark.parametrize("score", ["omp", "nomp", "ols"])
@pytest.mark.parametrize("positive", [True, False])
@each_layout
@pytest.mark.every(30)
def test_omp_is_that_of_one_device(score, positive, layout):
    n = 46 if layout in ("over the other axis", "everywhere") else N  # 4 · 12 - 2
    a, b = cases.pool(n, P)
    options = {"score": score, "positive": positive}
    options["penalty"] = np.resize(cases.psi(), n)
    options["valid"] = np.arange(n) % 7 > 0
    one = match.omp(a, b, K, **options)
    found = match.omp(put(a, layout), b, K, **shared(), **options)
    cases.same(found, one)
    assert found.indices.is_fully_addressable


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.left_out
def test_several_targets(kind):
    a, b = cases.pool(N, P)
    targets = np.stack([b, a[9], np.zeros_like(b)])
    options = {"mesh": mesh_of(kind), "axis": "rows"}
    found = match.omp(put(a, kind=kind), targets, K, **options)
    cases.same(found, match.omp(a, targets, K))


def test_the_first_of_equal_candidates_wins_on_any_device():
    a, b = cases.pool(N, P)
    a[[5, 17, 30, 44]] = 9 * b  # one on each device
    found = match.omp(put(a), b, 1, **shared())
    assert found.indices.tolist() == [5]
    valid = np.arange(N) > 20
    found = match.omp(put(a), b, 1, valid=valid, **shared())
    assert found.indices.tolist() == [30]


@pytest.mark.left_out
def test_gradients_of_any_kind():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(N, 3)), rng.integers(0, 3, N)
    features = rng.normal(size=(N, D)).astype(np.float16)
    one = gradients.last_layer(logits, labels, features)
    target = one.take(np.arange(5)).mean()
    wanted = match.omp(one, target, K)
    spread = gradients.last_layer(put(logits), put(labels), put(features))
    assert spread.layers[0].deltas.sharding.spec == jax.P("rows")
    cases.same(match.omp(spread, target, K, **shared()), wanted)
    # Of one array only a part is there; the other comes from this process.
    mixed = gradients.Factored(
        (dataclasses.replace(one.layers[0], deltas=spread.layers[0].deltas),)
    )
    cases.same(match.omp(mixed, target, K, **shared()), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["both", "candidates", "target"])
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("classes", [None, "mixed", "sorted"])
def test_grad_match(given, batch_size, classes):
    a, hard = cases.normal(46, P), cases.normal(22, P, seed=1)
    labels = {}
    if classes:
        y, y_hard = np.arange(46) * 7 % 3, np.arange(22) % 3
        labels = {"labels": np.sort(y) if classes == "sorted" else y}
        labels |= {"hard_labels": y_hard}
    one = match.grad_match(a, hard, 9, batch_size=batch_size, **labels)
    x, b = (
        put(array, "over the other axis") if given in ("both", name) else array
        for array, name in ((a, "candidates"), (hard, "target"))
    )
    found = match.grad_match(x, b, 9, batch_size=batch_size, **labels, **shared())
    cases.same(found, one)


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [False, True])
def test_func_feat(labelled):
    a, hard = cases.normal(N, P), cases.normal(15, P, seed=1)
    x, x_hard = cases.normal(N, D), cases.normal(15, D, seed=1)
    labels = {"labels": np.arange(N) % 3, "hard_labels": np.arange(15) % 3}
    labels = labels if labelled else {}
    one = match.func_feat(a, hard, x, x_hard, 9, **labels)
    for b, z in ((put(a), x), (a, put(x)), (put(a), put(x))):
        cases.same(match.func_feat(b, hard, z, x_hard, 9, **labels, **shared()), one)


def test_features_of_func_feat_are_no_oracle():
    a = cases.normal(N, P)
    with pytest.raises(ValueError, match="features must have shape") as error:
        match.func_feat(a, a, put(cases.normal(N)), a, 9, **shared())
    assert "oracle" not in str(error.value)


@pytest.mark.parametrize("size", [1, 2, 5, 13, 46])
@pytest.mark.every(3)
def test_groups_go_to_one_device(size):
    a = cases.normal(46, P)
    mesh = jaxsel.make_mesh(jax.devices()[:4])
    laid = _resident.Resident.of(gradients.dense(a), mesh)
    for rows in (np.arange(46), np.arange(46) % 5 == 1, np.arange(46) < 9):
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        found = laid.take(rows).grouped(size)
        means = [a[rows[i : i + size]].mean(0) for i in range(0, len(rows), size)]
        assert len(found) == len(means)
        kept = np.asarray(found.oracle.gradients)[found.places >= 0]
        np.testing.assert_allclose(kept, means, rtol=1e-5, atol=1e-6)


def test_means_are_not_spoilt_by_other_rows():
    a = cases.normal(N, P)
    a[[0, 12]] = np.nan  # the first rows of two devices, one of which has no other
    mesh = jaxsel.make_mesh(jax.devices()[:4])
    laid = _resident.Resident.of(gradients.Dense(jnp.asarray(a)), mesh)
    rows = np.r_[3:9, 40:44]
    np.testing.assert_allclose(laid.mean(rows), a[rows].mean(0), rtol=1e-5, atol=1e-6)
    assert np.isnan(laid.mean()).all()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda a: a.astype(complex), TypeError, "candidates must be real"),
        (lambda a: a[:, :, None], ValueError, r"candidates must have shape \[n, d\]"),
        (lambda a: a[:, :0], ValueError, "candidates must not be empty"),
    ],
)
def test_arrays_that_are_refused(wrong, error, message):
    a, b = cases.pool(N, P)
    with pytest.raises(error, match=message):
        match.omp(put(wrong(a)), b, K, **shared())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_refused(value):
    a, b = cases.pool(N, P)
    a[[33, 41], 2] = value
    with pytest.raises(ValueError, match=r"row 33 has NaN or infinity \(2 of 48"):
        match.omp(put(a), b, K, **shared())
    # Of an oracle such candidates are never chosen, or refused by their length.
    spread = gradients.Dense(put(a))
    if np.isnan(value):
        wanted = match.omp(gradients.Dense(jnp.asarray(a)), b, K)
        cases.same(match.omp(spread, b, K, **shared()), wanted)
    else:
        with pytest.raises(ValueError, match="but candidate 33 is longer"):
            match.omp(spread, b, K, **shared())


def test_overflow_is_named_by_candidate():
    a, b = cases.pool(46, P)
    a[45] *= 1e25
    with pytest.raises(ValueError, match="but candidate 45 is longer"):
        match.omp(put(a, "over the other axis"), b, K, **shared())


def lengths_in(text):
    """Return the lengths of all axes of the arrays of a program."""
    shapes = set(re.findall(r"\b[a-z]+\d*\[([\d,]+)\]", text))
    return {int(d) for shape in shapes for d in shape.split(",")}


@pytest.mark.parametrize("score", ["omp", "ols"])
@pytest.mark.left_out
def test_no_device_has_more_than_its_part(score, monkeypatch):
    """Neither gradients nor columns, nor anything else of length n."""
    n, p, k = 512, 24, 16
    a, b = cases.pool(n, p)
    texts = []
    run = _compute._pursue_across

    def look(*arguments, **options):
        texts.append(run.lower(*arguments, **options).compile().as_text())
        return run(*arguments, **options)

    monkeypatch.setattr(_compute, "_pursue_across", look)
    found = match.omp(put(a), b, k, score=score, **shared())
    cases.same(found, match.omp(a, b, k, score=score))
    (text,) = texts
    lengths = lengths_in(text)
    assert n // 4 in lengths
    assert n not in lengths
    for name in ("all-gather", "all-to-all", "collective-permute"):
        sizes = re.findall(rf"= \(?\w+\[([\d,]*)\][^=]*? {name}(?:-start)?\(", text)
        assert all(np.prod([int(d) for d in s.split(",") if d]) <= 4 for s in sizes)


# Choosers with one column at a time, or all of them some at a time.

CHOOSERS = {
    "herding": lambda a, b, **options: match.herding(a, b, K, **options),
    "log_det": lambda a, b, **options: match.log_det(a, K, **options),
    "log_det, no ridge": lambda a, b, **options: match.log_det(a, K, l2=0, **options),
    "influence_topk": lambda a, b, **options: match.influence_topk(a, b, K, **options),
    "cosines": lambda a, b, **options: match.influence_topk(
        [a, a], [np.stack([b, -b]), np.stack([b, b])], K, normalise=True, **options
    ),
    "facility": lambda a, b, **options: match.facility_location(a, K, **options),
    "stochastic": lambda a, b, **options: match.facility_location(
        a, K, search="stochastic", key=jax.random.key(0), squared=True, **options
    ),
}
each_chooser = pytest.mark.parametrize("name", CHOOSERS)


def same_choice(found, one):
    assert found.indices.is_fully_addressable
    np.testing.assert_array_equal(found.indices, one.indices)
    np.testing.assert_allclose(found.weights, one.weights, rtol=1e-6)
    assert int(found.n_valid) == int(one.n_valid)
    assert found.method == one.method


@each_chooser
@each_layout
@pytest.mark.every(36)
def test_choosers_choose_as_on_one_device(name, layout):
    n = 46 if layout in ("over the other axis", "everywhere") else N
    a, b = cases.pool(n, P)
    one = CHOOSERS[name](a, b)
    same_choice(CHOOSERS[name](put(a, layout), b, **shared()), one)


@each_chooser
@pytest.mark.left_out
def test_choosers_lay_out_what_the_process_has(name):
    """More devices than candidates: some have none, and repeat the last one's."""
    a, b = cases.pool(5, P)
    last = 0.01 * a
    last[-1] = 0.9 * b  # the best by far, were it there again
    for pool in (a, last):
        one = CHOOSERS[name](pool, b)
        same_choice(CHOOSERS[name](pool, b, mesh=jaxsel.make_mesh()), one)
        assert sorted(np.asarray(one.indices)[: len(one)]) == [*range(5)]


@each_chooser
@pytest.mark.every(7)
def test_choosers_pass_over_nan(name):
    a, b = cases.pool(N, P)
    a[np.arange(N) % 9 > 0, 3] = np.nan  # six are left, fewer than are asked for
    one = CHOOSERS[name](gradients.Dense(jnp.asarray(a)), b)
    assert len(one) == 6
    same_choice(CHOOSERS[name](gradients.Dense(put(a)), b, **shared()), one)


@pytest.mark.parametrize("name", [c for c in CHOOSERS if c != "influence_topk"])
def test_choosers_name_what_overflows(name):
    a, b = cases.pool(46, P)
    a[45] *= 1e25
    with pytest.raises(ValueError, match="but candidate 45 is longer"):
        CHOOSERS[name](put(a, "over the other axis"), b, **shared())


@each_chooser
def test_choosers_refuse_candidates_in_files_with_a_mesh(name):
    a, b = cases.pool(N, P)
    stream = gradients.streamed(lambda i: gradients.dense(a[i]), N)
    with pytest.raises(ValueError, match="mesh must be None for streamed candidates"):
        CHOOSERS[name](stream, b, mesh=jaxsel.make_mesh())


@pytest.mark.left_out
def test_choosers_take_gradients_of_any_kind():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(N, 3)), rng.integers(0, 3, N)
    features = rng.normal(size=(N, D)).astype(np.float32)
    one = gradients.last_layer(logits, labels, features)
    spread = gradients.last_layer(put(logits), put(labels), put(features))
    target = one.take(np.arange(5)).mean()
    for choose in CHOOSERS.values():
        if choose is not CHOOSERS["cosines"]:
            same_choice(choose(spread, target, **shared()), choose(one, target))


@pytest.mark.parametrize(
    ("name", "module", "kernel"),
    [
        ("herding", _herding, "_herd_across"),
        ("log_det", _log_det, "_factorise_across"),
        ("facility", _facility, "_gain_across"),
        ("facility", _facility, "_represent"),
    ],
)
@pytest.mark.left_out
def test_of_choosers_no_device_has_more_than_its_part(
    name, module, kernel, monkeypatch
):
    n, p = 512, 24
    a, b = cases.pool(n, p)
    monkeypatch.setattr(_facility, "_ENTRIES", 8 * n)  # eight columns at a time
    texts, run = [], getattr(module, kernel)

    def look(*arguments, **options):
        if not texts:
            texts.append(run.lower(*arguments, **options).compile().as_text())
        return run(*arguments, **options)

    monkeypatch.setattr(module, kernel, look)
    same_choice(CHOOSERS[name](put(a), b, **shared()), CHOOSERS[name](a, b))
    lengths = lengths_in(texts[0])
    assert n // 4 in lengths
    assert n not in lengths


@pytest.mark.left_out
def test_numbers_about_spread_candidates():
    a, b = cases.pool(46, P)
    psi = np.resize(cases.psi(), 46)
    found, one = (
        match.submodularity(x, K, penalty=psi, **options)
        for x, options in ((put(a, "over the other axis"), shared()), (a, {}))
    )
    np.testing.assert_allclose(
        dataclasses.astuple(found), dataclasses.astuple(one), rtol=1e-6
    )
    hard = cases.normal(13, P, seed=1)
    pairs = [(a, hard), (np.where(np.arange(46)[:, None] < 40, 0, a), hard)]
    one = match.choose_checkpoint(pairs, K)
    spread = [(put(x, "over the other axis"), h) for x, h in pairs]
    for given in (spread, [(x, put(h, "everywhere")) for x, h in spread]):
        found = match.choose_checkpoint(given, K, **shared())
        np.testing.assert_allclose(found.errors, one.errors, rtol=1e-4)
        assert found.index == one.index


def test_the_kernel_wants_one_column_at_a_time_there():
    a, b = cases.pool(N, P)
    with pytest.raises(ValueError, match="many must be 1 with an axis, got 2"):
        match.pursue(gradients.dense(a), b, budget=K, axis="data", many=2)
