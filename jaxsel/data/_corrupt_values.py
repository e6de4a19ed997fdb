"""Spoilt values: noise, masks, and colours."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy.typing as npt

from jaxsel._inputs.checks import check_positive

from ._corrupt import (
    check_dtype,
    check_images,
    check_share,
    corrupt_rows,
    count_of,
    is_known,
)

# How much red, green and blue count towards grey (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)


def gaussian_noise(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    rate: float | jax.Array = 1.0,
    *,
    scale: float | jax.Array = 0.1,
) -> tuple[jax.Array, jax.Array]:
    """Add independent normal noise to a share of the rows.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes, which stay within their range; or a
            table `[n, d]`, which isn't clipped.
        rate: Share of rows; exactly `round(rate * n)` are chosen.
        scale: Standard deviation, in the units of a table, or with images (bytes too)
            as a share of the full range.

    Returns:
        The new array, of the dtype of `x`, and the mask `[n]` of chosen rows.

    Raises:
        ValueError: If shapes, the rate or the scale are out of range.
        TypeError: If `x` is neither floating nor uint8.
    """
    array = _check_rows(x)
    if is_known(scale):
        check_positive("scale", float(scale), zero=True)
    count = count_of(len(array), rate)
    is_image = array.ndim == 4
    return corrupt_rows(key, array, count, scale, change=_add_noise, unit=is_image)


def mask_patches(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    rate: float | jax.Array = 1.0,
    *,
    share: float = 0.25,
    value: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Blank a part of each chosen row, at a place of its own.

    In images one rectangle of the proportions of the image; in tables single features.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes, or a table `[n, d]`.
        rate: Share of rows; exactly `round(rate * n)` are chosen.
        share: Share of the area, or of the features, to blank: above 0, up to 1. At
            least one pixel or feature is.
        value: Value to write there. Default: mid-grey (0.5) in images, which differs
            from a black or white background, and 0 in tables.

    Returns:
        The new array, of the dtype of `x`, and the mask `[n]` of chosen rows.

    Raises:
        ValueError: If shapes, the rate or the share are out of range.
        TypeError: If `x` is neither floating nor uint8.
    """
    array = _check_rows(x)
    check_share("share", share)
    if share == 0:
        raise ValueError("share must be above 0, got 0")
    count = count_of(len(array), rate)
    if array.ndim == 2:
        d = array.shape[1]
        settings = min(d, max(1, round(share * d))), 0.0 if value is None else value
        return corrupt_rows(
            key, array, count, settings, change=_mask_features, unit=False
        )
    high, wide = (max(1, round(math.sqrt(share) * side)) for side in array.shape[1:3])
    settings = high, wide, 0.5 if value is None else value
    return corrupt_rows(key, array, count, settings, change=_mask_patch, unit=True)


def color_jitter(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    rate: float | jax.Array = 1.0,
    *,
    brightness: float | jax.Array = 0.5,
    contrast: float | jax.Array = 0.5,
    saturation: float | jax.Array = 0.5,
) -> tuple[jax.Array, jax.Array]:
    """Change brightness, contrast and, with three channels, saturation.

    For each, a chosen image draws a factor from 1 - s to 1 + s, with s the strength
    given. In this order: the image is multiplied by the first; its distance from its
    mean grey by the second; the distance of each pixel from its own grey by the third.
    Results are clipped to 0..1.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes.
        rate: Share of rows; exactly `round(rate * n)` are chosen.
        brightness: Strength in 0..1.
        contrast: Strength in 0..1.
        saturation: Strength in 0..1; unused unless c is 3.

    Returns:
        The new images, of the dtype of `x`, and the mask `[n]` of chosen rows.

    Raises:
        ValueError: If shapes, the rate or a strength are out of range.
        TypeError: If `x` is neither floating nor uint8.
    """
    images = jnp.asarray(x)
    check_images(images)
    check_share("brightness", brightness)
    check_share("contrast", contrast)
    check_share("saturation", saturation)
    count = count_of(len(images), rate)
    strengths = brightness, contrast, saturation
    return corrupt_rows(key, images, count, strengths, change=_jitter, unit=True)


def _add_noise(key: jax.Array, row: jax.Array, scale: jax.Array) -> jax.Array:
    return row + scale * jax.random.normal(key, row.shape, row.dtype)


def _mask_features(
    key: jax.Array, row: jax.Array, settings: tuple[jax.Array, jax.Array]
) -> jax.Array:
    count, value = settings
    return jnp.where(jax.random.permutation(key, len(row)) < count, value, row)


def _mask_patch(
    key: jax.Array, image: jax.Array, settings: tuple[jax.Array, jax.Array, jax.Array]
) -> jax.Array:
    high, wide, value = settings
    h, w = image.shape[:2]
    limits = jnp.array([h - high + 1, w - wide + 1])
    top, left = jax.random.randint(key, (2,), 0, limits)
    i, j = jnp.arange(h)[:, None, None], jnp.arange(w)[None, :, None]
    inside = (i >= top) & (i < top + high) & (j >= left) & (j < left + wide)
    return jnp.where(inside, value, image)


def _jitter(
    key: jax.Array, image: jax.Array, strengths: tuple[jax.Array, jax.Array, jax.Array]
) -> jax.Array:
    brightness, contrast, saturation = strengths
    u = jax.random.uniform(key, (3,), image.dtype, -1, 1)
    image = jnp.clip(image * (1 + brightness * u[0]), 0, 1)
    mean = _grey(image).mean()
    image = jnp.clip(mean + (image - mean) * (1 + contrast * u[1]), 0, 1)
    if image.shape[-1] == 3:
        grey = _grey(image)
        image = grey + (image - grey) * (1 + saturation * u[2])
    return image


def _grey(image: jax.Array) -> jax.Array:
    if image.shape[-1] != 3:
        return image.mean(axis=-1, keepdims=True)
    weights = jnp.array(_LUMA, image.dtype)
    return (image * weights).sum(axis=-1, keepdims=True)


def _check_rows(x: npt.ArrayLike | jax.Array) -> jax.Array:
    array = jnp.asarray(x)
    if array.ndim != 2:
        check_images(array)
        return array
    check_dtype(array)
    if array.shape[1] == 0:
        raise ValueError(f"x must have at least one column, got shape {array.shape}")
    return array
