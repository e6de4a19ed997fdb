"""Choosers of `match.SELECTORS` against their definitions; wrong ones fail by name."""

import jax.numpy as jnp
import numpy as np
import pytest
import references_matching as ref
import selector_cases as cases

from jaxsel import Selection, match
from jaxsel._results.selector import Selector
from jaxsel.match import SELECTORS


def distances_of(pool, hard):
    """Return ψ of FuncFeat: distances from the median of unit hard samples, `[n]`."""
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (pool, hard)]
    centre = units[1].mean(axis=0)
    for _ in range(2000):  # Weiszfeld
        weights = 1 / np.maximum(np.linalg.norm(units[1] - centre, axis=1), 1e-12)
        centre = weights @ units[1] / weights.sum()
    return np.linalg.norm(units[0] - centre / np.linalg.norm(centre), axis=1)


def pursued(pool, hard, budget, **options):
    """Return the reference's choices whose weight has not returned to zero."""
    result = ref.omp(pool, hard.mean(0), budget, **options)
    return [i for i, w in zip(result.picked, result.weights, strict=True) if w > 0]


def near_the_median(pool, hard, budget):
    penalty = distances_of(pool, hard)
    return pursued(pool, hard, budget, score="ols", penalty=penalty, penalty_l2=2.0)


def covers(pool, hard, chosen):
    """Return minus the sum of distances to the nearest of `chosen` and each, `[n]`."""
    del hard
    distance = np.linalg.norm(pool[:, None] - pool, axis=-1)
    near = distance[:, chosen].min(axis=1, initial=np.inf)
    return -np.minimum(near[:, None], distance).sum(axis=0)


DEFINITIONS = {
    "omp": cases.listed(pursued),
    "grad_match": cases.listed(pursued),
    "func_feat": cases.listed(near_the_median),
    "herding": cases.listed(lambda a, h, k: ref.herding(a, h.mean(0), k)),
    "influence_topk": cases.listed(lambda a, h, k: np.argsort(-(a @ h.mean(0)))[:k]),
    "facility_location": cases.greedy(covers),
    "log_det": cases.listed(lambda a, h, k: ref.log_det(a, k, 0.5)),
}
each_selector = pytest.mark.parametrize("name", SELECTORS)


def test_every_chooser_is_registered_and_defined():
    assert cases.unregistered(match, SELECTORS) == []
    assert set(DEFINITIONS) == set(SELECTORS)
    assert all(getattr(match, name) is s.function for name, s in SELECTORS.items())


@each_selector
@pytest.mark.every(2)
def test_choosers_choose_by_their_definition(name):
    cases.check_definition(name, SELECTORS[name], DEFINITIONS[name])


@each_selector
@pytest.mark.every(2)
def test_choosers_pass_the_checks_of_all(name):
    cases.check_types(name, SELECTORS[name])
    cases.check_not_a_number(name, SELECTORS[name])
    cases.check_all(name, SELECTORS[name])


def selection(indices):
    """Return a choice with equal weights."""
    return Selection(
        indices=jnp.asarray(indices, jnp.int32),
        weights=jnp.ones(len(indices)),
        n_valid=jnp.asarray(len(indices), jnp.int32),
    )


def nan_first(candidates, target, budget) -> Selection:
    scores = np.asarray(candidates) @ target
    order = np.argsort(np.where(np.isnan(scores), -np.inf, -scores), kind="stable")
    return selection(order[:budget])


def least_first(candidates, target, budget) -> Selection:
    return selection(np.argsort(np.asarray(candidates) @ target)[:budget])


def test_a_chooser_that_picks_nan_first_is_named():
    new = Selector(nan_first, "mean")
    cases.check_definition("new", new, DEFINITIONS["influence_topk"])
    with pytest.raises(AssertionError, match="new chooses a candidate of NaN"):
        cases.check_not_a_number("new", new)


def test_a_wrong_chooser_is_named():
    with pytest.raises(AssertionError, match="new does not choose by its definition"):
        cases.check_definition(
            "new", Selector(least_first, "mean"), DEFINITIONS["influence_topk"]
        )


def test_a_chooser_that_is_not_registered_is_named(monkeypatch):
    monkeypatch.setattr(match, "newest", match.log_det, raising=False)
    assert cases.unregistered(match, SELECTORS) == ["newest"]
