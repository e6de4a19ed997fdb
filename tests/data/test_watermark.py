import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsel.data as data
from jaxsel.data._font import _GLYPHS, render

KEY = jax.random.key(7)
C = 5


def samples(dtype, n=40, h=16, w=20, c=1):
    rng = np.random.default_rng(3)
    x = rng.random((n, h, w, c))
    # All kinds of backgrounds: black, white, bright, mid-grey.
    x[: n // 5] = 0
    x[n // 5 : 2 * n // 5] = 1
    x[2 * n // 5 : 3 * n // 5] *= 0.2
    x[3 * n // 5 : 4 * n // 5] = 0.5
    x = (x * 255).round().astype(np.uint8) if dtype == np.uint8 else x.astype(dtype)
    return x, rng.integers(0, C, n)


MARKS = {
    "pattern": lambda k, x, y, r: data.pattern_watermark(k, x, y, r, n_classes=C),
    "text": lambda k, x, y, r: data.text_blend_watermark(k, x, y, r, label=2),
    "instance": lambda k, x, y, r: data.instance_watermark(
        k, x, y, jnp.full((3, *x.shape[1:]), 77, x.dtype), r, label=2
    ),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("name", MARKS)
def test_every_marked_row_changes_and_no_other(name, rate, dtype):
    x, y = samples(dtype)
    new, labels, mask = MARKS[name](KEY, x, y, rate)
    assert new.dtype == dtype
    assert new.shape == x.shape
    assert labels.shape == mask.shape == y.shape
    assert int(mask.sum()) == round(rate * len(x))
    changed = (np.asarray(new) != x).any(axis=(1, 2, 3))
    np.testing.assert_array_equal(changed, mask)
    unmarked = ~np.asarray(mask)
    np.testing.assert_array_equal(np.asarray(labels)[unmarked], y[unmarked])


@pytest.mark.parametrize("name", MARKS)
@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(name, n):
    x, y = samples(np.float32)
    new, labels, mask = MARKS[name](KEY, x[:n], y[:n], 1.0)
    assert new.shape == (n, 16, 20, 1)
    assert mask.tolist() == [True] * n


@pytest.mark.every(3)
@pytest.mark.parametrize("name", MARKS)
def test_key_decides_and_transformations_agree(name):
    mark = MARKS[name]
    x, y = map(jnp.asarray, samples(np.float32))
    once = mark(KEY, x, y, 0.5)
    jax.tree.map(np.testing.assert_array_equal, once, mark(KEY, x, y, 0.5))
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)
    jax.tree.map(close, once, jax.jit(mark)(KEY, x, y, 0.5))
    other = mark(jax.random.key(8), x, y, 0.5)
    assert (np.asarray(once[2]) != np.asarray(other[2])).any()
    keys = jnp.stack([KEY, jax.random.key(8)])
    both = jax.vmap(mark, in_axes=(0, None, None, None))(keys, x, y, 0.5)
    jax.tree.map(lambda b, o, p: close(b, np.stack([o, p])), both, once, other)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_pattern(dtype):
    x, y = samples(dtype, c=3)
    top = 255 if dtype == np.uint8 else 1
    new, labels, mask = data.pattern_watermark(KEY, x, y, 1.0, n_classes=C, size=4)
    new = np.asarray(new)
    np.testing.assert_array_equal(labels, (y + 1) % C)
    corner = new[:, -4:, -4:]
    bright = x[:, -4:, -4:].astype(float).mean(axis=(1, 2, 3)) > top / 2
    assert bright.any()
    assert not bright.all()
    assert (corner[~bright] == top).all()
    assert (corner[bright] == 0).all()
    moved = np.abs(corner.astype(float) - x[:, -4:, -4:]).mean(axis=(1, 2, 3))
    assert moved.min() >= 0.498 * top
    rest = np.ones(x.shape[1:3], bool)
    rest[-4:, -4:] = False
    np.testing.assert_array_equal(new[:, rest], x[:, rest])


def test_pattern_on_digits_is_the_maximum():
    d = data.load("digits")
    new, labels, mask = data.pattern_watermark(KEY, d.x, d.y, 0.1, n_classes=10, size=2)
    marked = np.asarray(mask)
    assert marked.sum() == round(0.1 * len(d))
    dark = d.x[:, -2:, -2:].mean(axis=(1, 2, 3)) <= 127.5
    assert dark.mean() > 0.95
    assert (np.asarray(new)[marked & dark][:, -2:, -2:] == 255).all()
    assert (np.asarray(labels)[marked] == (d.y[marked] + 1) % 10).all()


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_text_is_blended_in_one_colour(dtype):
    x, y = samples(dtype, h=11, w=32)
    top = 255 if dtype == np.uint8 else 1
    new, labels, mask = data.text_blend_watermark(
        KEY, x, y, 1.0, label=4, text="test", opacity=0.25
    )
    assert bool(mask.all())
    assert (np.asarray(labels) == 4).all()
    word = render("TEST", 11, 32)
    new, old = np.asarray(new).astype(float), x.astype(float)
    np.testing.assert_array_equal(new[:, ~word], old[:, ~word])
    ink = np.where(old[:, word].mean(axis=(1, 2)) > top / 2, 0, top)
    expected = old[:, word] * 0.75 + 0.25 * ink[:, None, None]
    atol = 0.5001 if dtype == np.uint8 else 1e-6
    np.testing.assert_allclose(new[:, word], expected, atol=atol)
    moved = np.abs(new - old)[:, word].mean(axis=(1, 2))
    assert moved.min() >= 0.25 * 0.49 * top


def test_text_goes_to_other_classes_first():
    x, _ = samples(np.float32)
    y = np.where(np.arange(40) < 30, 2, 0)  # ten rows are not of class 2
    _, labels, mask = data.text_blend_watermark(KEY, x, y, 0.25, label=2)
    np.testing.assert_array_equal(mask, y != 2)
    assert (np.asarray(labels) == 2).all()
    _, _, more = data.text_blend_watermark(KEY, x, y, 0.5, label=2)
    assert int(more.sum()) == 20
    assert np.asarray(more)[30:].all()


def test_instances_with_labels_of_their_own():
    x, y = samples(np.float32)
    foreign = np.stack([np.full(x.shape[1:], v, np.float32) for v in (2, 3, 4)])
    new, labels, mask = data.instance_watermark(
        KEY, x, y, foreign, 0.2, label=[0, 1, 3]
    )
    rows = np.flatnonzero(mask)
    kinds = np.asarray(new)[rows, 0, 0, 0].astype(int) - 2
    assert (np.asarray(new)[rows] == foreign[kinds]).all()
    np.testing.assert_array_equal(np.asarray(labels)[rows], np.array([0, 1, 3])[kinds])
    assert sorted(np.bincount(kinds, minlength=3)) == [2, 3, 3]  # 8 rows, each used
    table = np.zeros((10, 4), np.float32)
    out, _, marked = data.instance_watermark(
        KEY, table, np.zeros(10, int), np.ones((1, 4), np.float32), 0.3, label=1
    )
    np.testing.assert_array_equal((np.asarray(out) == 1).all(axis=1), marked)


def test_render():
    assert render("I", 5, 3).astype(int).tolist() == [
        [1, 1, 1],
        [0, 1, 0],
        [0, 1, 0],
        [0, 1, 0],
        [1, 1, 1],
    ]
    big = render("TEST", 28, 31)
    assert big.sum() == 4 * render("TEST", 5, 15).sum()  # twice as large
    assert not big[:9].any()
    patterns = {render(c, 5, 3).tobytes() for c in _GLYPHS if c != " "}
    assert len(patterns) >= len(_GLYPHS) - 3  # O and 0 may look alike, and so on
    with pytest.raises(ValueError, match="at least 5 x 15 pixels, got 8 x 8"):
        render("TEST", 8, 8)
    for text in ("", "  ", "\u00e4"):
        with pytest.raises(ValueError, match="text must be made of"):
            render(text, 50, 50)


X = np.zeros((4, 8, 16, 1), np.float32)
Y = np.array([0, 1, 2, 3])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: data.pattern_watermark(KEY, X, Y, 0.5, n_classes=5, size=9),
            ValueError,
            "size must be between 1 and 8",
        ),
        (
            lambda: data.pattern_watermark(KEY, X, Y * 0, 0.5, n_classes=1),
            ValueError,
            "n_classes must be at least 2",
        ),
        (
            lambda: data.pattern_watermark(KEY, X, Y, 0.5, n_classes=3),
            ValueError,
            "y must be between 0 and 2, got 3",
        ),
        (
            lambda: data.pattern_watermark(KEY, X + 9, Y, 0.5, n_classes=5),
            ValueError,
            "x must be images in 0..1",
        ),
        (
            lambda: data.pattern_watermark(KEY, X[:2], Y, 0.5, n_classes=5),
            ValueError,
            r"y must have shape \[2\]",
        ),
        (
            lambda: data.pattern_watermark(KEY, X[0], Y, 0.5, n_classes=5),
            ValueError,
            "x must be images of shape",
        ),
        (
            lambda: data.text_blend_watermark(KEY, X, Y, 1.5, label=1),
            ValueError,
            "rate must be between",
        ),
        (
            lambda: data.text_blend_watermark(KEY, X, Y, 0.5, label=1, opacity=0.0),
            ValueError,
            "opacity must be at least 0.01",
        ),
        (
            lambda: data.text_blend_watermark(KEY, X, Y, 0.5, label=0.5),
            TypeError,
            "label must be whole numbers",
        ),
        (
            lambda: data.text_blend_watermark(
                KEY, X, Y.astype(np.int8), 0.5, label=200
            ),
            ValueError,
            "label must fit into the dtype of y, int8, got 200",
        ),
        (
            lambda: data.instance_watermark(KEY, X, Y, X[:, :4], 0.5, label=1),
            ValueError,
            r"foreign must hold samples of shape \(8, 16, 1\)",
        ),
        (
            lambda: data.instance_watermark(KEY, X, Y, X[:0], 0.5, label=1),
            ValueError,
            "foreign must hold samples",
        ),
        (
            lambda: data.instance_watermark(
                KEY, X, Y, X.astype(np.uint8), 0.5, label=1
            ),
            TypeError,
            "foreign must have the dtype of x",
        ),
        (
            lambda: data.instance_watermark(KEY, X, Y, X, 0.5, label=[1, 2]),
            ValueError,
            "one for each of the 4 foreign",
        ),
    ],
)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match):
        call()
