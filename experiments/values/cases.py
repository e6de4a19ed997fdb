"""The study's applications: data, sizes and methods of each, one seed at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import numpy as np
import optax

from experiments._kit.scenes.samples import Part, digits
from experiments._kit.scenes.valuations import (
    Samples,
    Valuation,
    knn_methods,
    retrained_methods,
)
from jaxsel import Values, value
from jaxsel.models import MLP
from jaxsel.tasks import (
    Curves,
    acquisition,
    domain_adaptation,
    instance_watermark_detection,
    noisy_labels,
    pattern_watermark_detection,
    retrain_mlp,
    summarisation,
)

from .curves import packed
from .data import SIDE, VALUED_TEXTS, census, pictures, project, shrink, texts
from .methods import PENALTY, Exact, PaddedUtility, logistic
from .words import posts, posts_there

Job = Callable[[int], Mapping[str, Any]]
Embed = Callable[[np.ndarray], np.ndarray]
Learner = Callable[..., float]

EXACT = Exact(value.LogisticRegression(l2=PENALTY))
BAYES = value.GaussianNB(var_smoothing=0.05)

_BUYS = ("KNN-Shapley", "KNN-LOO", "TMC-Shapley", "LOO")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the applications.

    Attributes:
        n: Training points.
        n_val: Validation points.
        n_test: Test points.
        pool: Points on offer in the acquisition.
        rounds: Purchases, of 50 points each.
        width: Components that tables and texts are projected to.
        samples: Number of samples of sampled values, for ten classes.
        bayes: The same for naive Bayes, which is cheaper.
        two: The same for two classes, which are cheaper still.
    """

    n: int = 300
    n_val: int = 200
    n_test: int = 1000
    pool: int = 1000
    rounds: int = 4
    width: int = 12
    samples: Samples = Samples()
    bayes: Samples = Samples(permutations=256)
    two: Samples = Samples(permutations=512, passes=512, coalitions=8192, bags=512)


FULL = Sizes(
    n=1000,
    n_val=500,
    pool=2000,
    rounds=10,
    samples=Samples(passes=512, coalitions=4096, bags=512),
    bayes=Samples(permutations=256, passes=512, coalitions=4096, bags=512),
    two=Samples(permutations=512, passes=512, coalitions=16384, bags=1024),
)

TITLES = {
    "noisy-fashion_mnist": "Noisy labels, Fashion-MNIST, 10 %",
    "noisy-digits": "Noisy labels, digits, naive Bayes, 20 %",
    "noisy-texts": "Noisy labels, reviews (MiniLM), 10 %",
    "pattern-fashion_mnist": "Pattern watermark, Fashion-MNIST, 10 %",
    "pattern-mnist": "Pattern watermark, MNIST, 10 %",
    "instance-mnist": "Instance watermark, MNIST, 10 %",
    "summary-adult": "Summarisation, Adult",
    "acquisition-mnist": "Acquisition, MNIST",
    "mnist-digits": "MNIST to digits",
    "digits-mnist": "Digits to MNIST",
    "noisy-network": "Noisy labels, Fashion-MNIST, perceptron, 10 %",
    "noisy-words": "Noisy labels, adverts among posts, naive Bayes, 20 %",
    "pattern-test": "The word TEST, Fashion-MNIST, 10 %",
}


def applications(sizes: Sizes, *, with_texts: bool) -> dict[str, Job]:
    """Return the job of each application; data are read when first needed."""
    mnist, fashion, eights = (
        functools.cache(part)
        for part in (
            lambda: pictures("mnist"),
            lambda: pictures("fashion_mnist"),
            digits,
        )
    )
    adult = functools.cache(census)
    # Without its margin, as the digits of scikit-learn are.
    close = functools.cache(lambda: pictures("mnist", crop=2))
    jobs: dict[str, Callable[[int, jax.Array], Curves]] = {
        "noisy-fashion_mnist": lambda s, key: noisy(fashion(), sizes, key),
        "noisy-digits": lambda s, key: noisy(
            eights(),
            sizes,
            key,
            share=0.2,
            learner=BAYES,
            samples=sizes.bayes,
        ),
        "pattern-fashion_mnist": lambda s, key: marked(fashion(), sizes, key),
        "instance-mnist": lambda s, key: planted(
            mnist(), fashion().x[:2000], sizes, key
        ),
        "summary-adult": lambda s, key: summary(
            adult(), sizes, key, embed=project(adult().other_x, sizes.width)
        ),
        "acquisition-mnist": lambda s, key: bought(mnist(), sizes, key),
        "mnist-digits": lambda s, key: _adaptation(close(), eights(), sizes, key),
        "digits-mnist": lambda s, key: _adaptation(eights(), close(), sizes, key),
    }
    if posts_there():
        adverts = functools.cache(posts)
        jobs["noisy-words"] = lambda s, key: noisy(
            adverts(),
            sizes,
            key,
            share=0.2,
            learner=BAYES,
            samples=sizes.bayes,
        )
    # The word needs more pixels than values see.
    full_size = functools.cache(lambda: pictures("fashion_mnist", 28))
    small = lambda x: shrink(x, SIDE).reshape(len(x), -1)
    jobs["pattern-test"] = lambda s, key: marked(
        full_size(), sizes, key, pattern="text", embed=small
    )
    if sizes == FULL:
        jobs["pattern-mnist"] = lambda s, key: marked(mnist(), sizes, key)
    if accelerated():
        jobs["noisy-network"] = lambda s, key: noisy(
            fashion(), sizes, key, learner=perceptron(10)
        )
    if with_texts:
        valued = max(VALUED_TEXTS, sizes.n + sizes.n_val)
        read = functools.cache(lambda: texts(valued=valued)["MiniLM"])
        jobs["noisy-texts"] = lambda s, key: noisy(
            read(),
            sizes,
            key,
            samples=sizes.two,
            embed=project(read().other_x, sizes.width),
        )
    return {
        name: functools.partial(_one, jobs[name], number)
        for number, name in enumerate(TITLES)
        if name in jobs
    }


def accelerated() -> bool:
    """Return whether there is an accelerator; without one networks are left out."""
    return jax.default_backend() != "cpu"


@functools.cache
def perceptron(n_classes: int, hidden: int = 32) -> value.FlaxLearner:
    """Return a network with a hidden layer, for values that train it again."""
    return value.FlaxLearner(
        lambda rngs: MLP(SIDE * SIDE, hidden, n_classes, rngs=rngs),
        optax.adam(1e-2),
        steps=100,
        batch_size=32,
    )


def _one(
    run: Callable[[int, jax.Array], Curves], number: int, seed: int
) -> dict[str, Any]:
    key = jax.random.fold_in(jax.random.key(seed), number)
    return packed(run(seed, key))


def _methods(
    learner: value.Learner, samples: Samples, *, foreign: bool = False
) -> dict[str, Valuation]:
    return knn_methods(foreign=foreign) | retrained_methods(learner, samples)


def _three(sizes: Sizes) -> dict[str, Any]:
    return {"n": sizes.n, "n_val": sizes.n_val, "n_test": sizes.n_test}


def noisy(
    part: Part,
    sizes: Sizes,
    key: jax.Array,
    *,
    share: float = 0.1,
    learner: value.Learner | None = None,
    samples: Samples | None = None,
    embed: Embed | None = None,
) -> Curves:
    """Detect wrong labels by all values, for one seed."""
    learner = logistic() if learner is None else learner
    return noisy_labels(
        part.x,
        part.y,
        _methods(learner, sizes.samples if samples is None else samples),
        n=sizes.n,
        n_val=sizes.n_val,
        rate=share,
        seeds=1,
        key=key,
        embed=embed,
    )


def marked(
    part: Part,
    sizes: Sizes,
    key: jax.Array,
    *,
    pattern: Literal["corner", "text"] = "corner",
    size: int = 2,
    learner: Learner | None = None,
    embed: Embed | None = None,
) -> Curves:
    """Detect samples with a mark by all values, for one seed."""
    return pattern_watermark_detection(
        part.x,
        part.y,
        _methods(logistic(), sizes.samples, foreign=True),
        rate=0.1,
        pattern=pattern,
        size=size,
        embed=embed,
        learner=retrain_mlp() if learner is None else learner,
        seeds=1,
        key=key,
        **_three(sizes),
    )


def planted(
    part: Part,
    foreign: np.ndarray,
    sizes: Sizes,
    key: jax.Array,
    *,
    rate: float = 0.1,
    learner: Learner = EXACT,
    embed: Embed | None = None,
) -> Curves:
    """Detect samples of another source by all values, for one seed."""
    return instance_watermark_detection(
        part.x,
        part.y,
        foreign,
        _methods(logistic(), sizes.samples, foreign=True),
        rate=rate,
        learner=learner,
        embed=embed,
        seeds=1,
        key=key,
        **_three(sizes),
    )


def summary(
    part: Part,
    sizes: Sizes,
    key: jax.Array,
    *,
    samples: Samples | None = None,
    **options: Any,
) -> Curves:
    """Summarise by removing the lowest values of each kind, for one seed."""
    return summarisation(
        part.x,
        part.y,
        _methods(logistic(), sizes.two if samples is None else samples),
        remove=np.arange(11) / 20,
        learner=EXACT,
        seeds=1,
        key=key,
        **_three(sizes),
        **options,
    )


def bought(part: Part, sizes: Sizes, key: jax.Array, **options: Any) -> Curves:
    """Acquire points by predicted values, for one seed."""
    capacity = 100 + 50 * sizes.rounds

    def retrained(
        estimate: Callable[..., Values],
    ) -> Valuation:
        def call(x: Any, y: Any, x_val: Any, y_val: Any, key: jax.Array) -> Values:
            utility = PaddedUtility(BAYES, x, y, x_val, y_val, capacity=capacity)
            return estimate(utility, key=key)

        return call

    samples = sizes.samples
    tmc = functools.partial(
        value.tmc_shapley,
        stop=value.MaxSamples(samples.permutations),
        tolerance=samples.tolerance,
    )
    methods = knn_methods() | {
        "TMC-Shapley": retrained(tmc),
        "LOO": retrained(value.loo),
    }
    return acquisition(
        part.x,
        part.y,
        {name: methods[name] for name in _BUYS},
        n_pool=sizes.pool,
        n_test=sizes.n_test,
        rounds=sizes.rounds,
        learner=EXACT,
        seeds=1,
        key=key,
        **options,
    )


def _adaptation(source: Part, target: Part, sizes: Sizes, key: jax.Array) -> Curves:
    return domain_adaptation(
        (source.x, source.y),
        (target.x, target.y),
        _methods(logistic(), sizes.samples),
        learner=EXACT,
        seeds=1,
        key=key,
        **_three(sizes),
    )
