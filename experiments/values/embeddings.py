"""Appendix F: does the embedding matter, and do top classes agree?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import jax
import numpy as np

import jaxsel
from experiments._kit.scenes.samples import Part
from jaxsel.data import flip_labels
from jaxsel.tasks import detection_curve

from .data import LARGE, network, project
from .images import ENCODERS, ROWS, Encoded

MEASURES = ("KNN-Shapley", "KNN-LOO")
IMAGES = ("pixels", "32 components", "CNN, other classes", "CNN, MNIST")
PRETRAINED = (*IMAGES, *(encoder.name for encoder in ENCODERS.values()))
"""Embeddings of images where the encoders are prepared."""
TEXTS = ("mean word embeddings", "MiniLM")
VALUED, TOP = 6, 3
"""Classes that are valued (the other four train a network), and how many are top."""
SHOWN = 20
"""Points of the highest values that a gallery shows."""

_KEPT = 0.1  # share of points that count as the most valuable


def images_seed(
    fashion: Part,
    mnist: Part,
    pretrained: Encoded | None,
    *,
    n: int,
    n_val: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Compare embeddings of six classes of Fashion-MNIST for one seed.

    Networks train on the other four classes, or on MNIST, and principal components on
    other images of the six classes; encoders were pretrained on other data sets.

    Args:
        fashion: Images; those that may be valued are the encoded rows of `ROWS`.
        mnist: Images of MNIST, for a network.
        pretrained: The same rows of the six classes by all `ENCODERS`, or None.
        n: Training points.
        n_val: Validation points.
        seed: Seed of the draws.

    Returns:
        "auc", `[measures, embeddings]`, of finding 10 % wrong labels; "counts",
        `[embeddings, classes]`, of the tenth of highest KNN-Shapley value, labels
        right; "points", `[embeddings, embeddings]`, the share that two of them have in
        common; "gallery", `[embeddings, 20, side, side]`, the images of the highest
        values. Embeddings are `PRETRAINED`, or else `IMAGES`.
    """
    other = fashion.other_y >= VALUED
    nets = (
        network(fashion.other_x[other], fashion.other_y[other], seed),
        network(mnist.other_x, mnist.other_y, seed),
    )
    rows = ROWS["fashion_mnist"]
    y = fashion.y[: rows.stop - rows.start]
    valued = y < VALUED
    images = fashion.x[: len(y)][valued].reshape(int(valued.sum()), -1)
    width = images.shape[1]
    pixels = lambda x: x[:, :width]
    square = lambda x: pixels(x).reshape(len(x), LARGE, LARGE, 1)
    components = project(fashion.other_x[~other], 32)
    embeds: list[Callable[[np.ndarray], np.ndarray]] = [
        pixels,
        lambda x: components(pixels(x)),
        *(lambda x, net=net: net(square(x)) for net in nets),
    ]
    columns = [images]
    if pretrained is not None:
        if not np.array_equal(pretrained.y[pretrained.other :], y[valued]):
            raise ValueError("pretrained must have the rows that are valued, in order")
        for name in ENCODERS:
            features = pretrained.features[name][pretrained.other :]
            start = sum(part.shape[1] for part in columns)
            stop = start + features.shape[1]
            columns.append(features)
            embeds.append(lambda x, a=start, b=stop: x[:, a:b])
    part = Part(np.concatenate(columns, 1), y[valued], fashion.other_x, fashion.other_y)
    names = IMAGES if pretrained is None else PRETRAINED
    results = _compare(part, dict(zip(names, embeds, strict=True)), n, n_val, seed)
    gallery = images[results.pop("best")]
    shape = (*gallery.shape[:2], LARGE, LARGE)
    return results | {
        "gallery": np.round(255 * gallery).astype(np.uint8).reshape(shape)
    }


def texts_seed(
    parts: Mapping[str, Part], *, n: int, n_val: int, seed: int
) -> dict[str, np.ndarray]:
    """Compare two embeddings of film reviews for one seed, as `images_seed`."""
    first = parts[TEXTS[0]]
    width = first.x.shape[1]
    both = Part(
        np.concatenate([parts[name].x for name in TEXTS], axis=1),
        first.y,
        first.other_x,
        first.other_y,
    )
    embeds = {
        name: lambda x, i=i: x[:, i * width : (i + 1) * width]
        for i, name in enumerate(TEXTS)
    }
    results = _compare(both, embeds, n, n_val, seed)
    del results["best"]  # texts have no gallery
    return results


def _compare(
    part: Part,
    embeds: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    n: int,
    n_val: int,
    seed: int,
) -> dict[str, np.ndarray]:
    key, flips = jax.random.split(jax.random.key((13 << 16) + seed))
    order = np.asarray(jax.random.permutation(key, len(part.y)))[: n + n_val]
    x, y = part.x[order], part.y[order]
    classes = int(part.y.max()) + 1
    labels, wrong = (
        np.asarray(a) for a in flip_labels(flips, y[:n], 0.1, n_classes=classes)
    )
    auc = np.zeros((len(MEASURES), len(embeds)))
    counts, tops, best = [], [], []
    for j, embed in enumerate(embeds.values()):
        features = np.asarray(embed(x), np.float32)
        halves = features[:n], features[n:]
        for i, function in enumerate((jaxsel.knn_shapley, jaxsel.knn_loo)):
            values = function(halves[0], labels, halves[1], y[n:], k=5).values
            auc[i, j] = detection_curve(np.asarray(values, np.float64), wrong).auc
        right = jaxsel.knn_shapley(halves[0], y[:n], halves[1], y[n:], k=5)
        tops.append(np.asarray(right.top(round(_KEPT * n))))
        best.append(order[np.asarray(right.top(SHOWN))])
        counts.append(np.bincount(y[tops[-1]], minlength=classes))
    shared = [[len(np.intersect1d(a, b)) / len(a) for b in tops] for a in tops]
    return {
        "auc": auc,
        "counts": np.array(counts),
        "points": np.array(shared),
        "best": np.array(best),
    }


def names_of(kind: str, embedded: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the names of the embeddings in results, stacked over seeds."""
    if kind == "texts":
        return TEXTS
    return IMAGES if embedded["auc"].shape[-1] == len(IMAGES) else PRETRAINED


def top_overlap(counts: np.ndarray, top: int = TOP) -> np.ndarray:
    """Return the share of top classes that pairs of embeddings have in common.

    Args:
        counts: `[embeddings, classes]`; ties go to the class of lower number.
        top: Number of top classes; at random `top / classes` are shared.
    """
    best = np.argsort(-counts, axis=1, kind="stable")[:, :top]
    return np.array([[len(np.intersect1d(a, b)) / top for b in best] for a in best])


def correlation(counts: np.ndarray) -> float:
    """Return the mean Spearman correlation of class counts over pairs of embeddings."""
    from scipy.stats import ConstantInputWarning, spearmanr

    rhos = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        for i in range(len(counts)):
            for j in range(i):
                rhos.append(float(spearmanr(counts[i], counts[j])[0]))  # pyright: ignore
    return float(np.nanmean(rhos))
