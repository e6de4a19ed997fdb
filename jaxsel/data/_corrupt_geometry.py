"""Images seen from elsewhere: perspective, crops and mirrors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy.typing as npt

from ._corrupt import check_images, check_share, corrupt_rows, count_of


def perspective(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    rate: float | jax.Array = 1.0,
    *,
    distortion: float | jax.Array = 0.2,
    fill: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """View each chosen image under a random homography, sampled bilinearly.

    The corners of the new image are points of the old one that lie up to `distortion`
    of a side away from its corners, inside or outside, in each direction.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes.
        rate: Share of rows; exactly `round(rate * n)` are chosen.
        distortion: Largest displacement as a share of the side, 0 to 0.24: beyond a
            quarter the four corners may no longer be a convex figure.
        fill: Value outside the old image, in 0..1.

    Returns:
        The new images, of the dtype of `x`, and the mask `[n]` of chosen rows.

    Raises:
        ValueError: If shapes, the rate or the distortion are out of range.
        TypeError: If `x` is neither floating nor uint8.

    References:
        Heckbert, Fundamentals of Texture Mapping and Image Warping, 1989, section
        2.2.3: the map from the unit square to a quadrilateral in closed form.
    """
    images = jnp.asarray(x)
    check_images(images)
    check_share("distortion", distortion, below=0.24)
    count, settings = count_of(len(images), rate), (distortion, fill)
    return corrupt_rows(key, images, count, settings, change=_tilt, unit=True)


def crop_and_flip(
    key: jax.Array,
    x: npt.ArrayLike | jax.Array,
    rate: float | jax.Array = 1.0,
    *,
    smallest: float | jax.Array = 0.5,
    flip: float | jax.Array = 0.5,
) -> tuple[jax.Array, jax.Array]:
    """Cut a random part out of each chosen image, enlarge it, and maybe mirror it.

    Args:
        key: Random key.
        x: Images `[n, h, w, c]` in 0..1 or bytes.
        rate: Share of rows; exactly `round(rate * n)` are chosen.
        smallest: The part's side is drawn between this share of the image's and all of
            it; its place too is random. It is enlarged bilinearly to the old size.
        flip: Probability of exchanging left and right.

    Returns:
        The new images, of the dtype of `x`, and the mask `[n]` of chosen rows.

    Raises:
        ValueError: If shapes, the rate, `smallest` or `flip` are out of range.
        TypeError: If `x` is neither floating nor uint8.
    """
    images = jnp.asarray(x)
    check_images(images)
    check_share("smallest", smallest)
    check_share("flip", flip)
    count, settings = count_of(len(images), rate), (smallest, flip)
    return corrupt_rows(key, images, count, settings, change=_crop, unit=True)


def _tilt(
    key: jax.Array, image: jax.Array, settings: tuple[jax.Array, jax.Array]
) -> jax.Array:
    distortion, fill = settings
    shift = jax.random.uniform(key, (4, 2), jnp.float32, -1, 1) * distortion
    corners = jnp.array([[0, 0], [1, 0], [1, 1], [0, 1]], jnp.float32) + shift
    u, v = _to_quadrilateral(corners, *_grid(*image.shape[:2]))
    return _sample(image, u, v, fill)


def _crop(
    key: jax.Array, image: jax.Array, settings: tuple[jax.Array, jax.Array]
) -> jax.Array:
    smallest, flip = settings
    draw = jax.random.uniform(key, (4,), jnp.float32)
    scale = smallest + (1 - smallest) * draw[0]
    u, v = _grid(*image.shape[:2])
    u = jnp.where(draw[3] < flip, 1 - u, u)
    u = draw[1] * (1 - scale) + scale * u
    v = draw[2] * (1 - scale) + scale * v
    return _sample(image, u, v, None)


def _grid(h: int, w: int) -> tuple[jax.Array, jax.Array]:
    """Return where pixels lie in the unit square: how far right, and down, `[h, w]`."""
    v, u = jnp.meshgrid(
        (jnp.arange(h) + 0.5) / h, (jnp.arange(w) + 0.5) / w, indexing="ij"
    )
    return u, v


def _sample(
    image: jax.Array, u: jax.Array, v: jax.Array, fill: float | jax.Array | None
) -> jax.Array:
    """Read the image at places of the unit square, between pixels bilinearly.

    Beyond the border lies `fill`, or where that is None the nearest pixel.
    """
    h, w = image.shape[:2]
    y, x = v * h - 0.5, u * w - 0.5
    top, left = jnp.floor(y), jnp.floor(x)
    total = jnp.zeros((), image.dtype)
    for i, j in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        row = jnp.clip(i, 0, h - 1).astype(jnp.int32)
        column = jnp.clip(j, 0, w - 1).astype(jnp.int32)
        pixel = image[row, column]
        if fill is not None:
            inside = (i >= 0) & (i < h) & (j >= 0) & (j < w)
            pixel = jnp.where(inside[..., None], pixel, fill)
        weight = (1 - jnp.abs(y - i)) * (1 - jnp.abs(x - j))
        total = total + weight[..., None] * pixel
    return total


def _to_quadrilateral(
    corners: jax.Array, u: jax.Array, v: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Map the unit square onto a quadrilateral with corners in order, `[4, 2]`."""
    p0, p1, p2, p3 = corners
    # d3 measures how far the corners are from a parallelogram; g = h = 0 if it is 0.
    d1, d2, d3 = p1 - p2, p3 - p2, p0 - p1 + p2 - p3
    det = d1[0] * d2[1] - d2[0] * d1[1]
    g = (d3[0] * d2[1] - d2[0] * d3[1]) / det
    h = (d1[0] * d3[1] - d3[0] * d1[1]) / det
    a, b = p1 - p0 + g * p1, p3 - p0 + h * p3
    scale = 1 / (g * u + h * v + 1)
    return (
        (a[0] * u + b[0] * v + p0[0]) * scale,
        (a[1] * u + b[1] * v + p0[1]) * scale,
    )
