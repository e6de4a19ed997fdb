"""Noise, masks, colours, perspective and crops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsel.data as data
from jaxsel.data._corrupt_geometry import _to_quadrilateral

KEY = jax.random.key(5)
IMAGES = ["gaussian_noise", "mask_patches", "color_jitter", "perspective"]
IMAGES += ["crop_and_flip"]
TABLES = ["gaussian_noise", "mask_patches"]


def images(n=12, h=9, w=7, c=3, dtype=np.float32):
    x = np.random.default_rng(1).random((n, h, w, c))
    return (x * 255).round().astype(np.uint8) if dtype == np.uint8 else x.astype(dtype)


@pytest.mark.parametrize(
    ("channels", "dtype"), [(1, np.float32), (3, np.uint8), (4, jnp.bfloat16)]
)
@pytest.mark.every(18)
@pytest.mark.parametrize("name", IMAGES)
def test_changes_exactly_the_chosen_images(name, channels, dtype):
    x = images(c=channels, dtype=dtype)
    for rate in (0.0, 0.25, 0.5, 1.0):
        new, mask = getattr(data, name)(KEY, x, rate)
        assert new.dtype == dtype
        assert new.shape == x.shape
        assert mask.shape == (len(x),)
        assert int(mask.sum()) == round(rate * len(x))
        changed = (np.asarray(new) != x).any(axis=(1, 2, 3))
        np.testing.assert_array_equal(changed, mask)
        top = 255 if dtype == np.uint8 else 1
        assert float(new.min()) >= 0
        assert float(new.max()) <= top


@pytest.mark.parametrize("name", TABLES)
def test_changes_exactly_the_chosen_rows(name):
    x = np.random.default_rng(2).normal(size=(20, 6)).astype(np.float32)
    new, mask = getattr(data, name)(KEY, x, 0.3)
    assert int(mask.sum()) == 6
    np.testing.assert_array_equal((np.asarray(new) != x).any(axis=1), mask)


@pytest.mark.parametrize("shape", [(0, 9, 7, 3), (1, 1, 1, 1)])
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.every(5)
def test_few_images(name, shape):
    new, mask = getattr(data, name)(KEY, np.full(shape, 0.3, np.float32))
    assert new.shape == shape
    assert mask.tolist() == [True] * shape[0]


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.left_out
def test_key_decides_and_transformations_agree(name):
    corrupt = getattr(data, name)
    x = jnp.asarray(images())
    once = corrupt(KEY, x, 0.5)
    jax.tree.map(np.testing.assert_array_equal, once, corrupt(KEY, x, 0.5))
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5)
    jax.tree.map(close, once, jax.jit(corrupt)(KEY, x, 0.5))
    other = corrupt(jax.random.key(6), x, 0.5)
    assert (np.asarray(once[0]) != np.asarray(other[0])).any()
    keys = jnp.stack([KEY, jax.random.key(6)])
    both = jax.vmap(corrupt, in_axes=(0, None, None))(keys, x, 0.5)
    jax.tree.map(lambda b, o, p: close(b, np.stack([o, p])), both, once, other)


@pytest.mark.every(6)
@pytest.mark.parametrize("name", IMAGES)
def test_a_row_does_not_depend_on_how_many_follow(name):
    x = images(12)
    corrupt = getattr(data, name)
    np.testing.assert_allclose(
        corrupt(KEY, x[:5])[0], corrupt(KEY, x)[0][:5], atol=1e-6
    )


@pytest.mark.left_out
def test_noise_has_the_deviation_asked_for():
    x = np.zeros((400, 50), np.float32)
    new, _ = data.gaussian_noise(KEY, x, scale=2.0)
    assert abs(float(new.mean())) < 4 * 2 / np.sqrt(x.size)
    assert abs(float(new.std()) - 2) < 4 * 2 / np.sqrt(2 * x.size)
    # In bytes the scale is a share of the full range.
    grey = np.full((50, 20, 20, 1), 128, np.uint8)
    noisy, _ = data.gaussian_noise(KEY, grey, scale=0.05)
    spread = np.asarray(noisy).astype(float).std()
    assert abs(spread - 0.05 * 255) < 4 * 12.75 / np.sqrt(2 * grey.size) + 0.05
    same, mask = data.gaussian_noise(KEY, grey, scale=0.0)
    np.testing.assert_array_equal(same, grey)
    assert bool(mask.all())


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 1.0])
def test_masks_the_share_asked_for(share):
    x = np.ones((30, 8, 12, 2), np.float32)
    new = np.asarray(data.mask_patches(KEY, x, share=share, value=0.0)[0])
    side = np.sqrt(share)
    expected = max(1, round(side * 8)) * max(1, round(side * 12))
    masked = (new == 0).all(axis=-1)
    assert set(masked.sum(axis=(1, 2))) == {expected}
    for image in masked:  # one rectangle, and the channels together
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        assert len(rows) * len(columns) == expected
        assert rows[-1] - rows[0] + 1 == len(rows)
        assert columns[-1] - columns[0] + 1 == len(columns)
    assert ((new == 0) == masked[..., None]).all()
    table = np.ones((30, 10), np.float32)
    rows = np.asarray(data.mask_patches(KEY, table, share=share)[0])
    assert set((rows == 0).sum(axis=1)) == {max(1, round(share * 10))}


def test_patches_can_lie_anywhere():
    x = np.zeros((3000, 4, 4, 1), np.float32)
    new = np.asarray(data.mask_patches(KEY, x, share=0.25)[0])[..., 0]
    assert set(np.unique(new)) == {0, 0.5}
    places = {tuple(np.argwhere(image)[0]) for image in new}
    assert places == {(i, j) for i in range(3) for j in range(3)}


@pytest.mark.left_out
def test_color_jitter_does_what_it_says():
    x = images(200)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    only = lambda **one: np.asarray(
        data.color_jitter(
            KEY, x / 2, **{"brightness": 0, "contrast": 0, "saturation": 0, **one}
        )[0]
    )
    close(only(), x / 2)
    brighter = only(brightness=1.0) / (x / 2)
    factor = brighter.reshape(200, -1)
    assert np.ptp(factor[factor.max(axis=1) < 1.5], axis=1).max() < 1e-3
    assert (factor.mean(axis=1) < 0.5).any()
    assert (factor.mean(axis=1) > 1.5).any()
    grey = x @ np.array([0.299, 0.587, 0.114])
    mean = grey.mean(axis=(1, 2))[:, None, None, None] / 2
    less = only(contrast=0.5)
    ratio = (less - mean).std(axis=(1, 2, 3)) / (x / 2 - mean).std(axis=(1, 2, 3))
    assert ratio.min() < 0.6
    assert 1.2 < ratio.max() < 1.51
    coloured = only(saturation=0.5)
    inside = ((coloured > 0) & (coloured < 1)).all(axis=-1)
    own = coloured @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(own[inside], grey[inside] / 2, atol=1e-5)


def test_perspective_maps_corners_to_corners():
    corners = jnp.array([[0.1, -0.1], [0.9, 0.2], [1.2, 1.1], [-0.05, 0.8]])
    square = jnp.array([[0, 0], [1, 0], [1, 1], [0, 1]], jnp.float32)
    u, v = _to_quadrilateral(corners, square[:, 0], square[:, 1])
    np.testing.assert_allclose(jnp.stack([u, v], axis=1), corners, atol=1e-6)
    # Straight lines stay straight: the centre lies where the diagonals meet.
    u, v = _to_quadrilateral(corners, jnp.array([0.5]), jnp.array([0.5]))
    p, q = np.asarray(corners[2] - corners[0]), np.asarray(corners[3] - corners[1])
    s = np.linalg.solve(np.stack([p, -q], axis=1), np.asarray(corners[1] - corners[0]))
    meet = np.asarray(corners[0]) + s[0] * p
    np.testing.assert_allclose([u[0], v[0]], meet, atol=1e-6)


@pytest.mark.left_out
def test_geometry_without_strength_changes_nothing():
    x = images(dtype=np.uint8)
    for new, mask in (
        data.perspective(KEY, x, distortion=0.0),
        data.crop_and_flip(KEY, x, smallest=1.0, flip=0.0),
    ):
        np.testing.assert_array_equal(new, x)
        assert bool(mask.all())


def test_flips_left_and_right_as_often_as_asked():
    x = images(2000, 2, 4, 1)
    new = np.asarray(data.crop_and_flip(KEY, x, smallest=1.0, flip=0.3)[0])
    mirrored = np.isclose(new, x[:, :, ::-1], atol=1e-5).all(axis=(1, 2, 3))
    kept = np.isclose(new, x, atol=1e-5).all(axis=(1, 2, 3))
    assert (mirrored ^ kept).all()
    assert abs(mirrored.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(x))


@pytest.mark.left_out
def test_perspective_and_crop_interpolate():
    # Of an image that grows evenly to the right, any view grows along each row.
    x = np.broadcast_to(
        np.linspace(0.2, 0.8, 16, dtype=np.float32)[None, None, :, None],
        (50, 16, 16, 1),
    )
    crop = np.asarray(data.crop_and_flip(KEY, x, flip=0.0)[0])
    steps = np.diff(crop[:, :, 1:-1], axis=2)
    assert steps.min() > 0.4 * 0.6 / 15
    assert steps.max() < 1.01 * 0.6 / 15
    seen = np.asarray(data.perspective(KEY, x, distortion=0.1)[0])
    middle = seen[:, 5:11, 5:11]
    assert np.diff(middle, axis=2).min() > 0
    outside, _ = data.perspective(KEY, x, distortion=0.24, fill=1.0)
    assert float(outside.max()) == 1.0  # corners from beyond the image


@pytest.mark.parametrize(
    ("name", "x", "options", "error", "match"),
    [
        (
            "gaussian_noise",
            np.zeros((2, 3, 4)),
            {},
            ValueError,
            r"x must be images of shape \[n, h, w, c\]",
        ),
        ("gaussian_noise", np.zeros((2, 2), int), {}, TypeError, "floating or uint8"),
        (
            "gaussian_noise",
            np.zeros((2, 2)),
            {"scale": -1},
            ValueError,
            "scale must be finite",
        ),
        ("gaussian_noise", np.zeros((2, 0)), {}, ValueError, "at least one column"),
        ("mask_patches", np.zeros((2, 2)), {"share": 0.0}, ValueError, "share must be"),
        ("mask_patches", np.zeros((2, 2)), {"share": 1.1}, ValueError, "share must be"),
        (
            "color_jitter",
            np.full((1, 2, 2, 1), 7.0),
            {},
            ValueError,
            "x must be images in 0..1.*7.0",
        ),
        (
            "color_jitter",
            np.zeros((1, 2, 2, 1)),
            {"contrast": 2.0},
            ValueError,
            "contrast must be between",
        ),
        (
            "perspective",
            np.zeros((1, 2, 2, 1)),
            {"distortion": 0.3},
            ValueError,
            "distortion must be between 0 and 0.24",
        ),
        (
            "crop_and_flip",
            np.zeros((1, 2, 2, 1)),
            {"smallest": -0.1},
            ValueError,
            "smallest must be between",
        ),
        (
            "crop_and_flip",
            np.full((1, 2, 2, 1), np.nan),
            {},
            ValueError,
            "x must be images in 0..1",
        ),
        (
            "perspective",
            np.zeros((1, 2, 2, 1)),
            {"rate": 1.01},
            ValueError,
            "rate must be between 0 and 1",
        ),
    ],
)
def test_bad_input(name, x, options, error, match):
    x = x if x.dtype == int else x.astype(np.float32)
    with pytest.raises(error, match=match):
        getattr(data, name)(KEY, x, **options)
