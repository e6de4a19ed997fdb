"""Watermarks: samples planted to recognise who trained on a data set."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ._corrupt import (
    check_images,
    check_labels,
    check_share,
    choose_rows,
    count_of,
    is_known,
    mix,
)
from ._font import render


def pattern_watermark(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    y: npt.ArrayLike | jax.Array,
    rate: float | jax.Array,
    *,
    n_classes: int,
    size: int = 3,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Set a corner of a share of the images, and move their label up by one class.

    The lower right corner goes to the maximum (1, or 255 in bytes), or to 0 where its
    mean is above half already: so the mark always changes it by at least half of the
    range on average. On dark backgrounds, as in MNIST, that is always the maximum.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes.
        y: Labels `[n]`, whole numbers in 0..n_classes - 1.
        rate: Share of rows; exactly `round(rate * n)` are chosen, any of them alike.
        n_classes: Number of classes, at least 2.
        size: Side of the corner in pixels, at most that of the image.

    Returns:
        The new images and labels, `(y + 1) mod n_classes` where marked, and the mask
        `[n]` of marked rows.

    Raises:
        ValueError: If shapes, labels, the rate, or the size are out of range.
        TypeError: If dtypes don't fit.

    References:
        Jia, Wu, Sun, Xu, Dao, Kailkhura, Zhang, Li and Song, Scalability vs. Utility:
        Do We Have to Sacrifice One for the Other in Data Importance Quantification?,
        CVPR 2021, appendix E.2.
    """
    images, labels = _check(x, y, n_classes)
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, got {n_classes}")
    if not 1 <= size <= min(images.shape[1:3]):
        raise ValueError(
            f"size must be between 1 and {min(images.shape[1:3])}, got {size}"
        )
    mask = choose_rows(key, len(images), count_of(len(images), rate))
    corner = jnp.zeros(images.shape[1:3], bool).at[-size:, -size:].set(True)
    marked = _ink(images, corner, 1.0)
    raised = ((labels.astype(jnp.int32) + 1) % n_classes).astype(labels.dtype)
    return mix(mask, marked, images), jnp.where(mask, raised, labels), mask


def text_blend_watermark(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    y: npt.ArrayLike | jax.Array,
    rate: float | jax.Array,
    *,
    label: int,
    text: str = "TEST",
    opacity: float = 0.5,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Blend a word into a share of the images, and give them all one label.

    The word is white, or black where the pixels below it have a mean above half: so it
    always changes them by at least half of the opacity on average. Rows of other
    classes are chosen first, any of them alike; rows that have the label already only
    when there are no others left.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes.
        y: Labels `[n]`.
        rate: Share of rows; exactly `round(rate * n)` are chosen.
        label: The class that marked rows get.
        text: The word to write: letters, digits and simple signs. Four letters take at
            least 15 x 5 pixels; the word grows with the image.
        opacity: How much of the word's colour to mix in, 0.01 to 1.

    Returns:
        The new images and labels, and the mask `[n]` of marked rows.

    Raises:
        ValueError: If shapes, the rate or the opacity are out of range, or the text
            does not fit.
        TypeError: If dtypes don't fit.

    References:
        Jia et al., CVPR 2021 (as for `pattern_watermark`), appendix E.2.
    """
    images, labels = _check(x, y, None)
    check_share("opacity", opacity)
    if opacity < 0.01:  # could be lost in rounding to bytes
        raise ValueError(f"opacity must be at least 0.01, got {opacity}")
    target = _as_labels(label, labels.dtype)
    n = len(images)
    # Rows of other classes first; at random within both parts.
    order = jnp.lexsort((jax.random.permutation(key, n), labels == target))
    mask = jnp.zeros(n, bool).at[order].set(jnp.arange(n) < count_of(n, rate))
    word = jnp.asarray(render(text, *images.shape[1:3]))
    marked = _ink(images, word, opacity)
    return mix(mask, marked, images), jnp.where(mask, target, labels), mask


def instance_watermark(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    y: npt.ArrayLike | jax.Array,
    foreign: npt.ArrayLike | jax.Array,
    rate: float | jax.Array,
    *,
    label: int | npt.ArrayLike | jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Replace a share of the images by foreign ones with labels of their own.

    Each foreign image is used once before any is used again.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]`, or a table `[n, d]`.
        y: Labels `[n]`.
        foreign: Out-of-distribution samples `[m, ...]` of the shape and dtype of `x`:
            abstract pictures, or another data set.
        rate: Share of rows; exactly `round(rate * n)` are chosen, any of them alike.
        label: The class of all foreign samples, or one for each, `[m]`.

    Returns:
        The new samples and labels, and the mask `[n]` of replaced rows.

    Raises:
        ValueError: If shapes or the rate are out of range, or there is nothing foreign.
        TypeError: If dtypes differ.

    References:
        Adi, Baum, Cisse, Pinkas and Keshet, Turning Your Weakness Into a Strength,
        USENIX Security 2018; Jia et al., CVPR 2021 (as for `pattern_watermark`).
    """
    samples, labels, others = jnp.asarray(x), jnp.asarray(y), jnp.asarray(foreign)
    check_labels(labels, None, len(samples))
    if others.shape[1:] != samples.shape[1:] or len(others) == 0:
        raise ValueError(
            f"foreign must hold samples of shape {samples.shape[1:]}, got an array of "
            f"shape {others.shape}"
        )
    if others.dtype != samples.dtype:
        raise TypeError(
            f"foreign must have the dtype of x, {samples.dtype}, got {others.dtype}"
        )
    theirs = _as_labels(label, labels.dtype)
    if theirs.shape not in ((), (len(others),)):
        raise ValueError(
            f"label must be one class or one for each of the {len(others)} foreign "
            f"samples, got shape {theirs.shape}"
        )
    n, m = len(samples), len(others)
    key_rows, key_foreign = jax.random.split(key)
    # A chosen row's place among the chosen ones determines its foreign image.
    place = jax.random.permutation(key_rows, n)
    mask = place < count_of(n, rate)
    # Places modulo m use every foreign sample once before any twice.
    source = jax.random.permutation(key_foreign, m)[place % m]
    new_labels = jnp.broadcast_to(theirs, (m,))[source]
    return (
        mix(mask, others[source], samples),
        jnp.where(mask, new_labels, labels),
        mask,
    )


def _check(
    x: npt.ArrayLike | jax.Array,
    y: npt.ArrayLike | jax.Array,
    n_classes: int | None,
) -> tuple[jax.Array, jax.Array]:
    images, labels = jnp.asarray(x), jnp.asarray(y)
    check_images(images)
    check_labels(labels, n_classes, len(images))
    return images, labels


def _as_labels(label: int | npt.ArrayLike | jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Convert the label of marked rows to the dtype of the labels."""
    labels = jnp.asarray(label)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError(f"label must be whole numbers, got dtype {labels.dtype}")
    if is_known(labels):
        host = np.asarray(labels)
        if (host.astype(dtype) != host).any():
            raise ValueError(
                f"label must fit into the dtype of y, {dtype}, got {label}"
            )
    return labels.astype(dtype)


@jax.jit
def _ink(
    images: jax.Array, stencil: jax.Array, opacity: float | jax.Array
) -> jax.Array:
    """Mix black or white, whichever differs more, into the pixels of a stencil."""
    top = 255.0 if images.dtype == jnp.uint8 else 1.0
    old = images.astype(jnp.float32) if images.dtype == jnp.uint8 else images
    where = stencil[:, :, None]
    covered = jnp.sum(old * where, axis=(1, 2, 3), keepdims=True)
    mean = covered / (stencil.sum() * images.shape[-1])
    ink = jnp.where(mean > top / 2, 0.0, top).astype(old.dtype)
    new = jnp.where(where, old + opacity * (ink - old), old)
    new = jnp.round(new) if images.dtype == jnp.uint8 else new
    return new.astype(images.dtype)
