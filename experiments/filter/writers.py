"""A benchmark set from few writers: clusters of handwriting stand in for writers.

No data set that is prepared here records its writers. A writer slants, presses and
stretches all digits alike; so digits are clustered by slant, width of the stroke and
width of the digit, each relative to the mean of its class, and a cluster is taken for
a writer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from experiments._kit.scenes.federation import FilterSizes
from experiments._kit.scenes.thresholds import FILTERS, begin, filtered
from experiments._kit.scenes.trainer import Samples, take

STYLES, FEW = 20, 2
"""Number of clusters, and of clusters in the few writers' set."""

SOURCES = ("all", "few")
"""Origin of a benchmark set of fixed size: all writers, or few."""


@dataclasses.dataclass(frozen=True, eq=False)
class Styles:
    """Clusters of handwriting.

    Attributes:
        means: Mean features of each class, `[C, 3]`.
        scale: Spread of each feature about these, `[3]`.
        centres: `[styles, 3]`.
    """

    means: np.ndarray
    scale: np.ndarray
    centres: np.ndarray

    def of(self, samples: Samples) -> np.ndarray:
        """Return the cluster of each sample, `[n]`."""
        beside = (handwriting(samples[0]) - self.means[samples[1]]) / self.scale
        gaps = beside[:, None] - self.centres
        return np.sum(gaps * gaps, axis=2).argmin(1)


def handwriting(x: np.ndarray) -> np.ndarray:
    """Return slant, stroke and width of images, `[n, 3]`.

    Slant is the shift to the right for each row that the ink lies higher; the stroke is
    ink for each unit of contrast between neighbouring pixels; width is the ink's spread
    to the sides beside its spread up and down.

    Args:
        x: Ink in [0, 1], `[n, h, w]`.
    """
    x = np.asarray(x, np.float64)
    ink = np.maximum(x.sum((1, 2)), 1e-9)
    rows, columns = np.arange(x.shape[1]), np.arange(x.shape[2])
    by_row, by_column = x.sum(2), x.sum(1)
    down = rows - (by_row @ rows / ink)[:, None]
    aside = columns - (by_column @ columns / ink)[:, None]
    tall = np.maximum((by_row * down**2).sum(1) / ink, 1e-9)
    wide = np.maximum((by_column * aside**2).sum(1) / ink, 1e-9)
    both = np.einsum("nij,ni,nj->n", x, down, aside) / ink
    # Total variation measures the outline, and ink over outline the stroke's width.
    contrast = sum(np.abs(np.diff(x, axis=axis)).sum((1, 2)) for axis in (1, 2))
    # Slant is the regression of columns on rows; the sign makes rows point upwards.
    return np.stack(
        [-both / tall, ink / np.maximum(contrast, 1e-9), np.sqrt(wide / tall)], axis=1
    )


def cluster(samples: Samples, styles: int, seed: int) -> Styles:
    """Cluster samples by their handwriting, relative to the mean of their class."""
    from sklearn.cluster import KMeans

    x, y = handwriting(samples[0]), samples[1]
    means = np.stack([x[y == c].mean(0) for c in range(int(y.max()) + 1)])
    beside = x - means[y]
    scale = np.maximum(beside.std(0), 1e-9)
    kmeans = KMeans(styles, n_init="auto", random_state=seed).fit(beside / scale)
    return Styles(means, scale, kmeans.cluster_centers_)


def writers_seed(
    target: Samples, others: Sequence[Samples], sizes: FilterSizes, seed: int
) -> dict[str, np.ndarray]:
    """Filter strong open-set noise by a benchmark set of all writers, and of few.

    Half of the target's samples are for the benchmark sets only.

    Returns:
        By name, for each of `SOURCES` and of the first two `FILTERS`: `removed`, share
        of the noise; `own` and `foreign`, shares of the clean samples kept, of the few
        writers and of the others; and `accuracy` in the end, all `[2, 2]`; `benchmark`,
        accuracy of the benchmark's model, `[2]`; `none` and `ideal`, without a filter
        and with clean samples alone.

    Raises:
        ValueError: If the few writers have too few samples.
    """
    styles = cluster(target, STYLES, seed)
    rng = np.random.default_rng([seed, 0])
    order = rng.permutation(len(target[1]))
    reserve, for_clients = (take(target, rows) for rows in np.array_split(order, 2))
    start = begin(for_clients, others, sizes, seed)
    scene = start.scene("open", max(sizes.ratios))
    few = rng.permutation(STYLES)[:FEW]
    wanted = len(scene.benchmark[1])
    theirs = np.flatnonzero(np.isin(styles.of(reserve), few))
    if len(theirs) < wanted:
        raise ValueError(
            f"the few writers must have {wanted} samples, got {len(theirs)}"
        )
    clean = scene.clean
    of_few = np.isin(styles.of(take(scene.samples, np.flatnonzero(clean))), few)
    figures: dict[str, list[list[float]]] = {
        name: [] for name in ("removed", "own", "foreign", "accuracy")
    }
    models = []
    for rows in (np.arange(wanted), theirs[:wanted]):
        benchmark = take(reserve, rows)
        with_benchmark = dataclasses.replace(scene, benchmark=benchmark)
        bench = start.train(benchmark)
        kept = [filtered(with_benchmark, bench)[0][name] for name in FILTERS[:2]]
        figures["removed"].append([(~mask)[~clean].mean() for mask in kept])
        figures["own"].append([mask[clean][of_few].mean() for mask in kept])
        figures["foreign"].append([mask[clean][~of_few].mean() for mask in kept])
        figures["accuracy"].append(
            [start.learn(with_benchmark, mask)[0].scores[-1] for mask in kept]
        )
        models.append(bench.net.right(*scene.test).mean())
    all_rows = np.ones(len(clean), bool)
    return jax.tree.map(np.array, figures, is_leaf=lambda x: isinstance(x, list)) | {
        "benchmark": np.array(models),
        "none": np.array(start.learn(scene, all_rows)[0].scores[-1]),
        "ideal": np.array(start.learn(scene, clean)[0].scores[-1]),
    }
