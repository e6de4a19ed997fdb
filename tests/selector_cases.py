"""Checks that a registered chooser passes; one that is wrong fails by its name."""

import inspect

import jax
import numpy as np

N, M, D, BUDGET = 30, 5, 4, 6


def pools():
    """Yield pools and hard samples: standard normal, and columns of raw scales."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pool, hard = rng.normal(size=(N, D)), rng.normal(0.7, 1.0, size=(M, D))
        yield pool, hard
        scales = np.array([1.0, 100.0, 0.01, 10.0])
        yield pool * scales, hard * scales


def unregistered(room, registry):
    """List the public functions of a room that return a choice and have no entry."""
    return [
        name
        for name, thing in vars(room).items()
        if inspect.isfunction(thing)
        and not name.startswith("_")
        and "budget" in inspect.signature(thing).parameters
        and inspect.signature(thing).return_annotation in ("Selection", "Match")
        and "pure kernel" not in (inspect.getdoc(thing) or "")
        and name not in registry
    ]


def listed(choose):
    """Define a chooser by its whole choice, `(pool, hard, budget) -> positions`."""
    return lambda pool, hard, choice: list(choose(pool, hard, BUDGET)) == choice


def greedy(score):
    """Define a chooser by what it makes largest, `(pool, hard, chosen) -> scores`.

    Scores within rounding of the largest are ties.
    """

    def is_right(pool, hard, choice):
        for step, position in enumerate(choice):
            scores = score(pool, hard, choice[:step])
            if scores[position] < scores.max() - 1e-6 * np.abs(scores).max():
                return False
        return len(choice) == BUDGET

    return is_right


def check_definition(name, selector, is_right):
    """Demand choices by definition, in float64 and in float32, of raw scales too."""
    for pool, hard in pools():
        with jax.enable_x64(True):
            choice = selector(pool, hard, BUDGET)
        narrow = selector(pool.astype(np.float32), hard.astype(np.float32), BUDGET)
        for each in (choice, narrow):
            message = f"{name} does not choose by its definition"
            assert is_right(pool, hard, list(each)), message
            assert np.all(np.asarray(each.weights)[: len(each)] > 0), name


def check_types(name, selector):
    """Compare with the choice under strict promotion, in float32 and in float64."""
    wide = next(pools())
    for kind in (np.float32, np.float64):
        pool, hard = (array.astype(kind) for array in wide)
        with jax.enable_x64(kind is np.float64):
            expected = list(selector(pool, hard, BUDGET))
            with jax.numpy_dtype_promotion("strict"):
                assert list(selector(pool, hard, BUDGET)) == expected, name


def check_not_a_number(name, selector):
    """Demand that a candidate of NaN is refused, by its row, or never chosen."""
    pool, hard = next(pools())
    pool[3] = np.nan
    try:
        choice = list(selector(pool, hard, BUDGET))
    except ValueError as error:
        if "row 3" not in str(error):
            raise
        return
    assert 3 not in choice, f"{name} chooses a candidate of NaN"


def check_all(name, selector):
    """Demand that a budget beyond the pool gives no sample twice, and none outside."""
    pool, hard = next(pools())
    choice = list(selector(pool[:6], hard, 9))
    assert len(set(choice)) == len(choice), f"{name} chooses a sample twice"
    assert set(choice) <= set(range(6)), name
