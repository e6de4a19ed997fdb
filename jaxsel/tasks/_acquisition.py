"""Active acquisition: which unlabelled points to buy, predicted from known values."""

# The decorator fills in all options.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple, Unpack

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._runs.progress import track
from jaxsel.data import gaussian_noise

from ._application import (
    RANDOM,
    Keys,
    Run,
    Source,
    ValueFunction,
    check_methods,
    check_source,
    draw_runs,
    features,
    random_values,
    value_one,
    valued_rows,
    warn_if_seen,
)
from ._curves import Curves, stack
from ._learners import LOGISTIC, Learner, Scorer, Test
from ._options import DrawOptions, task_options
from ._retrained import accuracy_summary


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Acquisition(Curves):
    """Curves of an acquisition.

    Attributes:
        clean_bought: By method, `[seeds, p]`: how many of the points bought so far came
            without noise.
    """

    clean_bought: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


@task_options(DrawOptions, n_val=100)
def acquisition(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    n_start: int = 100,
    n_pool: int = 2000,
    n_test: int = 1000,
    noisy_start: float = 0.5,
    noisy_pool: float = 0.75,
    scale: float = 0.5,
    rounds: int = 20,
    buy: int = 50,
    iterated: bool = True,
    trees: int = 50,
    learner: Learner = LOGISTIC,
    embed_learner: bool = False,
    key: jax.Array,
    **options: Unpack[DrawOptions],
) -> Acquisition:
    """Buy the pool's points of highest predicted value, round by round.

    In each round the points that are owned are valued against the scoring set, a random
    forest learns to predict these values from features, and the pool's points of the
    highest prediction are bought. Their labels become known, and they are valued, and
    teach the forest, in the next round. The forest never sees a label, nor anything of
    the test set.

    Args:
        x: Source, images `[m, h, w, c]` in 0..1 or bytes, or a table `[m, d]`.
        y: Its classes `[m]`, counted from 0.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added, and buys at random.
        n_start: Points owned at the start.
        n_pool: Points on offer.
        n_test: Test points, without noise.
        noisy_start: Share of the start that gets Gaussian noise, 0 to 1.
        noisy_pool: Share of the pool that gets it, 0 to 1.
        scale: Standard deviation of the noise: for images a share of the range, which
            they stay within.
        rounds: Number of purchases.
        buy: Points of each purchase.
        iterated: Whether to value and predict anew in each round; otherwise the start's
            values alone decide.
        trees: Trees of the forest (scikit-learn's, with its other defaults).
        learner: `accuracy(x, y, x_test, y_test, key)`, such as `retrain_logistic()`.
        embed_learner: Whether the learner too sees embedded samples.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Scoring points (`n_val`), seeds and features: see `TaskOptions`. The
            scoring set has no noise, and the forest sees the features, too.

    Returns:
        Test accuracy against the points added, `[seeds, rounds + 1]`. Measures are
        "mean_accuracy" along the curve, "last_accuracy", and "clean_share" of all that
        was bought; the reference "all" is the accuracy with the whole pool.

    Costs `rounds` calls of each method and forests (one with `iterated=False`), and
    `rounds + 1` trainings for each method, for each seed.

    Raises:
        ValueError: If there are too few rows, a number is out of range, or a method's
            values do not fit.
        TypeError: If a method is not a function.
        ImportError: If scikit-learn is not installed.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, section 4.3 and appendix E.4.
    """
    embed, n_val = options["embed"], options["n_val"]
    check_methods(methods)
    source = check_source(x, y)
    for name, share in (("noisy_start", noisy_start), ("noisy_pool", noisy_pool)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {share}")
    check_positive("scale", scale, zero=True)
    check_count("trees", trees)
    if check_count("rounds", rounds) * check_count("buy", buy) > n_pool:
        raise ValueError(
            f"rounds * buy must be at most n_pool = {n_pool}, got {rounds} * {buy}"
        )
    sizes = {"n_start": n_start, "n_val": n_val, "n_pool": n_pool, "n_test": n_test}
    runs = draw_runs(source, sizes, seeds=options["seeds"], key=key)
    warn_if_seen(embed, source.x[valued_rows(runs, 0, 2)])
    ends = n_start + buy * np.arange(rounds + 1)
    accuracy, clean, reference = [], [], []
    for run in track(runs, progress=options["progress"], label="Acquisition"):
        offer = _draw_offer(source, run, noisy_start, noisy_pool, scale)
        embedded = features(embed, offer.x)
        embedded_val = features(embed, offer.val[0])
        x_learn, (x_test, y_test) = offer.x, offer.test
        if embed_learner:
            x_learn, x_test = embedded, features(embed, x_test)
        score = Scorer(learner, x_learn, offer.y, [(x_test, y_test)], run.keys.learn)
        chance = random_values(run.keys.random, n_pool).top(rounds * buy)
        rows = {
            name: _buy(
                name,
                method,
                offer,
                (embedded, embedded_val),
                run.keys,
                ends=ends,
                iterated=iterated,
                trees=trees,
            )
            for name, method in methods.items()
        }
        rows[RANDOM] = np.concatenate([np.arange(n_start), n_start + chance])
        accuracy.append(
            {
                m: np.concatenate([score(r[:end]) for end in ends])
                for m, r in rows.items()
            }
        )
        clean.append(
            {
                m: np.append(0, np.cumsum(offer.clean[r[n_start:]]))[ends - n_start]
                for m, r in rows.items()
            }
        )
        reference.append({"all": score(np.arange(len(offer.y)))[0]})
    curves, bought = stack(accuracy), stack(clean)
    return Acquisition(
        name=f"Acquisition ({', '.join(f'{k}={v}' for k, v in sizes.items())}, "
        f"noisy_start={noisy_start:g}, noisy_pool={noisy_pool:g}, scale={scale:g}, "
        f"iterated={iterated})",
        x=ends - n_start,
        curves=curves,
        summary={
            m: accuracy_summary(ends, c)
            | {"clean_share": bought[m][:, -1] / (rounds * buy)}
            for m, c in curves.items()
        },
        reference=stack(reference),
        xlabel="Points added",
        ylabel="Test accuracy",
        clean_bought=bought,
    )


class _Offer(NamedTuple):
    """Rows owned, then rows on offer, with flags for those without noise."""

    x: np.ndarray
    y: np.ndarray
    clean: np.ndarray
    val: Test
    test: Test


def _draw_offer(
    source: Source, run: Run, noisy_start: float, noisy_pool: float, scale: float
) -> _Offer:
    start, val, pool, test = map(source.take, run.parts)
    spoilt = [
        gaussian_noise(jax.random.fold_in(run.keys.corrupt, i), x, share, scale=scale)
        for i, (x, share) in enumerate(((start[0], noisy_start), (pool[0], noisy_pool)))
    ]
    return _Offer(
        x=np.concatenate([np.asarray(x) for x, _ in spoilt]),
        y=np.concatenate([start[1], pool[1]]),
        clean=~np.concatenate([np.asarray(noisy) for _, noisy in spoilt]),
        val=val,
        test=test,
    )


def _buy(
    name: str,
    method: ValueFunction,
    offer: _Offer,
    embedded: tuple[np.ndarray, np.ndarray],
    keys: Keys,
    *,
    ends: np.ndarray,
    iterated: bool,
    trees: int,
) -> np.ndarray:
    """Return the rows that are owned in the end, in the order of purchase.

    Args:
        name: Of the method.
        method: Values the rows that are owned.
        offer: All rows, those owned at the start first.
        embedded: Features of all rows, and of the scoring set.
        keys: Keys of values and forests.
        ends: Rows owned before each round, and after the last.
        iterated: Whether to value and predict anew in each round.
        trees: Trees of a forest.
    """
    from sklearn.ensemble import RandomForestRegressor

    x, x_val = embedded
    have, on_offer = np.split(np.arange(len(x)), ends[:1])
    predicted = np.empty(len(x))
    for i, more in enumerate(np.diff(ends)):
        if i == 0 or iterated:
            key_value, key_forest = (
                jax.random.fold_in(key, i) for key in (keys.value, keys.forest)
            )
            values = value_one(
                name, method, x[have], offer.y[have], x_val, offer.val[1], key_value
            )
            state = int(jax.random.randint(key_forest, (), 0, 2**31 - 1))
            forest = RandomForestRegressor(n_estimators=trees, random_state=state)
            predicted[on_offer] = forest.fit(x[have], values).predict(x[on_offer])
        best_first = np.argsort(-predicted[on_offer], kind="stable")[:more]
        have = np.append(have, on_offer[best_first])
        on_offer = np.delete(on_offer, best_first)
    return have
