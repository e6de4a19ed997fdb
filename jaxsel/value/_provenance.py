"""Provenance of KNN values, for `Values.merge`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxsel._results.types import Provenance
from jaxsel._runs.fingerprint import as_float32, fingerprint, sampled


def counted(
    kernel: Any,
    params: Any,
    x: Any,
    train: Any,
    x_val: Any,
    query: Any,
    *,
    sample: np.ndarray | None = None,
) -> Provenance:
    """Return digests of the kernel, training data and validation points.

    Args:
        kernel: The kernel, with functions among its fields.
        params: Arrays that all validation points share.
        x: Training features, `[n, d]`, of which about 1024 rows are looked at.
        train: Their labels or targets.
        x_val: Validation features, `[m, d]`.
        query: Their labels or targets.
        sample: `sampled(x)`, of features that are spread over devices.
    """
    labels = [_canonical(leaf) for leaf in jax.tree.leaves(train)]
    source = {
        "function, options or weights": fingerprint(kernel, jax.tree.leaves(params)),
        "x": fingerprint(x.shape, sampled(x) if sample is None else sample),
        "y": fingerprint(labels),
    }
    points = fingerprint(as_float32(x_val), jax.tree.leaves(query))
    return Provenance(source, (f"{len(x_val)} validation points {points}",))


def _canonical(labels: Any) -> np.ndarray:
    """Return codes of classes numbered anew.

    They were numbered together with the validation points, which may have more.
    """
    labels = np.asarray(labels)
    if labels.dtype.kind != "i" or labels.ndim != 1:
        return labels
    return (np.cumsum(np.bincount(labels) > 0) - 1)[labels]
