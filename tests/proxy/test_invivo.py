"""In vivo training learns, keeps the entropy's emulator honest, and stops in time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_build import TEXT, described, embedded, target

from jaxsel.proxy import (
    Emulator,
    Proxy,
    Spec,
    emulate,
    entropy,
    monotonicity,
    prune,
    refit_score,
    tune,
)
from jaxsel.proxy._training._invivo import ProxyLoss

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def ready():
    """A proxy of one layer with its emulators, embedded samples and target's logits."""
    model = target(TEXT)
    x, mask = embedded(model, TEXT)
    spec = Spec(1, 2, norm=Emulator("hinge", width=3), secure=Emulator("mlp", width=8))
    small = described(spec, TEXT)
    (proxy,) = emulate([prune(model, small)], x, mask, key=KEY, n_points=100_000)
    goal = np.random.default_rng(0).normal(size=(len(x), 3)).astype(np.float32)
    return proxy, x, mask, goal


@pytest.mark.slow
@pytest.mark.parametrize("goal", ["labels", "logits"])
def test_training_learns_and_the_emulator_follows(ready, goal):
    proxy, x, mask, logits = ready
    targets = logits if goal == "logits" else logits.argmax(1)
    found, training = tune(
        proxy,
        x,
        mask,
        targets,
        goal=goal,
        key=KEY,
        epochs=120,
        batch_size=40,
        learning_rate=3e-3,
        min_correlation=0.0,
    )
    assert training.stopped is None
    new = found.logits(x, mask)
    if goal == "labels":
        assert np.mean(np.argmax(new, 1) == targets) > 0.8
    else:
        centred = targets - targets.mean(1, keepdims=True)
        apart = new - new.mean(1, keepdims=True) - centred
        assert np.mean(apart**2) < 0.3 * np.mean(centred**2)
    stale = Proxy(found.manifest, found.params | {"score": proxy.params["score"]})
    before, after = (
        monotonicity(some.scores(new), entropy(new)) for some in (stale, found)
    )
    assert after > max(before, 0.6)


@pytest.mark.slow
def test_the_emulator_does_not_pull_at_the_logits(ready):
    proxy, x, mask, logits = ready
    inputs = x, mask.astype(np.float32)
    small, params = proxy.manifest, proxy.params
    exact = dataclasses.replace(
        small, score=dataclasses.replace(small.score, secure=Emulator("exact"))
    )
    one, two = (
        jax.grad(ProxyLoss(m, "logits"))(params, inputs, jnp.asarray(logits))
        for m in (small, exact)
    )
    assert jax.tree.all(
        jax.tree.map(
            lambda a, b: bool(jnp.allclose(a, b, atol=1e-6)),
            one["layers"],
            two["layers"],
        )
    )
    assert any(jnp.any(leaf != 0) for leaf in jax.tree.leaves(one["score"]))


@pytest.mark.slow
def test_what_diverges_stops_with_a_reason(ready):
    proxy, x, mask, logits = ready
    found, training = tune(
        proxy,
        1e30 * x,
        mask,
        logits,
        goal="logits",
        min_correlation=-1.0,
        key=KEY,
        epochs=2,
        batch_size=40,
    )
    assert "not finite" in training.stopped
    finite = jax.tree.map(lambda leaf: bool(jnp.isfinite(leaf).all()), found.params)
    assert jax.tree.all(finite)


@pytest.mark.slow
def test_a_refitted_score_follows_logits_that_have_moved(ready):
    """Logits ten times as large: what was fitted to small ones misorders them."""
    proxy, x, mask, _ = ready
    head = jax.tree.map(lambda leaf: 10 * leaf, proxy.params["head"])
    moved = Proxy(proxy.manifest, proxy.params | {"head": head})
    logits = moved.logits(x, mask)
    exact = entropy(logits)
    before = monotonicity(moved.scores(logits), exact)
    again = refit_score(moved, x, mask, key=KEY, n_points=300_000)
    after = monotonicity(again.scores(again.logits(x, mask)), exact)
    assert before + 0.1 < after
    assert after > 0.85
    np.testing.assert_array_equal(again.logits(x, mask), logits)
    spec = Spec(1, 2, secure="exact")
    exact_score = Proxy(described(spec, TEXT), proxy.params | {"score": {}})
    assert refit_score(exact_score, x, mask, key=KEY) is exact_score


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal": "rank"}, "goal must be one of 'labels'"),
        ({"goal": "ranks"}, r"targets must be entropies \[n\]"),
        ({"targets": np.zeros(40)}, r"targets must be logits \[n, 3\]"),
        (
            {"goal": "labels", "targets": np.full(40, 3)},
            r"targets must lie in \[0, 3\)",
        ),
        ({"targets": np.zeros((39, 3))}, "inputs and targets must have one length"),
    ],
)
def test_bad_input(ready, change, message):
    proxy, x, mask, logits = ready
    options = {"targets": logits, "goal": "logits"} | change
    with pytest.raises(ValueError, match=message):
        tune(proxy, x, mask, key=KEY, **options)
