import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsel.data as data

KEY = jax.random.key(3)


def labels(n, c=4, seed=0):
    return np.random.default_rng(seed).integers(0, c, n)


@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.7, 1.0])
@pytest.mark.every(4)
def test_flips_exactly_as_many_to_another_class(n, rate):
    y = labels(n)
    new, mask = data.flip_labels(KEY, y, rate, n_classes=4)
    assert new.shape == mask.shape == (n,)
    assert mask.dtype == bool
    assert int(mask.sum()) == round(rate * n)
    np.testing.assert_array_equal(np.asarray(new) != y, mask)
    assert n == 0 or (int(new.min()) >= 0 and int(new.max()) < 4)


def test_flips_to_all_other_classes_alike():
    n, c = 30_000, 5
    new, mask = data.flip_labels(KEY, np.full(n, 2), 1.0, n_classes=c)
    share = np.bincount(new, minlength=c) / n
    assert share[2] == 0
    others = share[[0, 1, 3, 4]]
    stderr = np.sqrt(0.25 * 0.75 / n)
    assert np.abs(others - 0.25).max() < 4 * stderr


def test_chooses_rows_alike():
    y = labels(40)
    keys = jax.random.split(KEY, 4000)
    masks = jax.vmap(lambda k: data.flip_labels(k, y, 0.25, n_classes=4)[1])(keys)
    often = np.asarray(masks).mean(axis=0)
    stderr = np.sqrt(0.25 * 0.75 / len(keys))
    assert np.abs(often - 0.25).max() < 4.5 * stderr


def test_flips_by_class():
    transition = np.array([[0, 1, 0], [0, 0, 1], [0.25, 0.75, 0]])
    n = 20_000
    y = labels(n, 3)
    new, mask = data.flip_labels(KEY, y, 0.5, n_classes=3, transition=transition)
    new, mask = np.asarray(new), np.asarray(mask)
    assert mask.sum() == n // 2
    assert (new[mask & (y == 0)] == 1).all()
    assert (new[mask & (y == 1)] == 2).all()
    from_2 = new[mask & (y == 2)]
    stderr = np.sqrt(0.25 * 0.75 / len(from_2))
    assert abs((from_2 == 0).mean() - 0.25) < 4 * stderr
    np.testing.assert_array_equal(new[~mask], y[~mask])


def test_a_diagonal_keeps_its_share():
    transition = np.array([[0.7, 0.3], [0.1, 0.9]])
    n = 20_000
    y = labels(n, 2)
    new, mask = data.flip_labels(KEY, y, 1.0, n_classes=2, transition=transition)
    np.testing.assert_array_equal(np.asarray(new) != y, mask)
    for c, share in enumerate((0.3, 0.1)):
        wrong = np.asarray(mask)[y == c]
        stderr = np.sqrt(share * (1 - share) / len(wrong))
        assert abs(wrong.mean() - share) < 4 * stderr


@pytest.mark.parametrize("n", [0, 1, 2, 9, 100])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.every(4)
def test_permutes_exactly_as_many(n, rate):
    y = np.arange(n)  # all different: whoever gets another's label is seen
    new, mask = data.permute_labels(KEY, y, rate)
    assert sorted(np.asarray(new).tolist()) == y.tolist()
    count = round(rate * n)
    assert int(mask.sum()) == (count if count > 1 else 0)
    np.testing.assert_array_equal(np.asarray(new) != y, mask)


def test_permutation_is_one_cycle_over_rows_chosen_alike():
    y = np.arange(10)
    keys = jax.random.split(KEY, 3000)
    new, mask = jax.vmap(lambda k: data.permute_labels(k, y, 0.4))(keys)
    for row, chosen in zip(np.asarray(new)[:50], np.asarray(mask)[:50], strict=True):
        start = at = np.flatnonzero(chosen)[0]
        seen = {int(at)}
        while row[at] != start:
            at = row[at]
            seen.add(int(at))
        assert seen == set(np.flatnonzero(chosen))
    often = np.asarray(mask).mean(axis=0)
    stderr = np.sqrt(0.4 * 0.6 / len(keys))
    assert np.abs(often - 0.4).max() < 4 * stderr


def test_permutation_leaves_some_right_by_chance():
    n = 20_000
    y = labels(n, 10)
    _, mask = data.permute_labels(KEY, y, 0.7)
    stderr = np.sqrt(0.63 * 0.37 / n)
    assert abs(float(mask.mean()) - 0.63) < 4 * stderr


CORRUPT = {
    "flip": lambda k, y, r: data.flip_labels(k, y, r, n_classes=4),
    "flip by class": lambda k, y, r: data.flip_labels(
        k, y, r, n_classes=4, transition=jnp.full((4, 4), 0.25)
    ),
    "permute": data.permute_labels,
}


@pytest.mark.parametrize("name", CORRUPT)
@pytest.mark.left_out
def test_key_decides_and_transformations_agree(name):
    corrupt, y = CORRUPT[name], jnp.asarray(labels(50))
    once, again = corrupt(KEY, y, 0.5), corrupt(KEY, y, 0.5)
    jax.tree.map(np.testing.assert_array_equal, once, again)
    jitted = jax.jit(corrupt)(KEY, y, 0.5)  # with a traced rate
    jax.tree.map(np.testing.assert_array_equal, once, jitted)
    other = corrupt(jax.random.key(4), y, 0.5)
    assert (np.asarray(once[1]) != np.asarray(other[1])).any()
    keys = jnp.stack([KEY, jax.random.key(4)])
    both = jax.vmap(corrupt, in_axes=(0, None, None))(keys, y, 0.5)
    jax.tree.map(
        lambda b, o, p: np.testing.assert_array_equal(b, np.stack([o, p])),
        both,
        once,
        other,
    )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("name", CORRUPT)
@pytest.mark.every(6)
def test_labels_keep_their_dtype(name, dtype):
    new, _ = CORRUPT[name](KEY, labels(20).astype(dtype), 1.0)
    assert new.dtype == dtype


def test_many_classes_in_small_integers():
    y = np.full(1000, 120, np.int8)  # 120 + 127 would overflow
    new, _ = data.flip_labels(KEY, y, 1.0, n_classes=128)
    assert int(new.min()) >= 0
    assert (np.asarray(new) != 120).all()


@pytest.mark.parametrize(
    ("y", "rate", "options", "error", "match"),
    [
        ([0, 0], 0.5, {"n_classes": 1}, ValueError, "n_classes must be at least 2"),
        ([0, 5], 0.5, {"n_classes": 3}, ValueError, "y must be between 0 and 2, got 5"),
        ([0, -1], 0.5, {"n_classes": 3}, ValueError, "got -1"),
        ([0.0, 1.0], 0.5, {"n_classes": 3}, TypeError, "y must be whole numbers"),
        ([[0]], 0.5, {"n_classes": 3}, ValueError, r"y must have shape \[n\]"),
        (
            np.array([0, 1], np.int8),
            0.5,
            {"n_classes": 200},
            ValueError,
            "n_classes must be at most 128 for labels of dtype int8",
        ),
        ([0, 1], 1.5, {"n_classes": 3}, ValueError, "rate must be between 0 and 1"),
        ([0, 1], -0.1, {"n_classes": 3}, ValueError, "rate must be between"),
        ([0, 1], float("nan"), {"n_classes": 3}, ValueError, "rate must be between"),
        (
            [0, 1],
            0.5,
            {"n_classes": 2, "transition": np.ones((3, 3)) / 3},
            ValueError,
            r"transition must have shape \(2, 2\)",
        ),
        (
            [0, 1],
            0.5,
            {"n_classes": 2, "transition": [[1, 0], [0.5, 0.6]]},
            ValueError,
            "row 1 is",
        ),
        (
            [0, 1],
            0.5,
            {"n_classes": 2, "transition": [[-1, 2], [0.5, 0.5]]},
            ValueError,
            "row 0 is",
        ),
    ],
)
def test_bad_input(y, rate, options, error, match):
    with pytest.raises(error, match=match):
        data.flip_labels(KEY, np.array(y), rate, **options)


def test_bad_input_to_permute():
    with pytest.raises(ValueError, match="rate must be between"):
        data.permute_labels(KEY, np.array([0, 1]), 2.0)
    with pytest.raises(TypeError, match="y must be whole numbers"):
        data.permute_labels(KEY, np.array([0.5, 1]), 1.0)
