"""Candidates that are loaded a chunk at a time."""

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import gradients

N = cases.N
each_chunk = pytest.mark.parametrize("chunk_size", [1, 4, N, 100])


class Loader:
    """Loads, and remembers what for."""

    def __init__(self, make):
        self.make, self.asked = make, []

    def __call__(self, indices):
        self.asked.append(np.asarray(indices))
        return self.make(indices)


@each_chunk
def test_from_a_memory_mapped_file(tmp_path, chunk_size):
    matrix = cases.normal(N, 7)
    path = tmp_path / "gradients.npy"
    np.save(path, matrix)
    mapped = np.load(path, mmap_mode="r")
    load = Loader(lambda indices: gradients.dense(mapped[indices]))
    oracle = gradients.streamed(load, N, chunk_size=chunk_size)
    check = cases.check_all if chunk_size == 4 else cases.check
    check(oracle, matrix.astype(np.float64))
    load.asked.clear()
    oracle.diag()
    assert max(map(len, load.asked)) <= chunk_size
    asked = np.concatenate(load.asked)
    assert asked.min() >= 0
    assert asked.max() < N


@pytest.mark.left_out
@pytest.mark.parametrize("chunk_size", [4])
@pytest.mark.parametrize("kind", ["ghost", "jvp"])
def test_from_a_model(kind, chunk_size):
    model = cases.plain()
    x, y = model.examples
    make = getattr(gradients, kind)
    load = lambda indices: make(model.loss, model.params, (x[indices], y[indices]))
    oracle = gradients.streamed(load, N, chunk_size=chunk_size)
    cases.check(oracle, cases.rows(model.loss, model.params, model.examples))


@pytest.mark.left_out
def test_from_a_random_access_source():
    """As TFDS data sources are: records by number, one at a time."""
    model = cases.plain()
    records = [{"x": x, "label": y} for x, y in zip(*model.examples, strict=True)]

    def load(indices):
        some = [records[int(i)] for i in indices]
        examples = jax.tree.map(lambda *leaves: np.stack(leaves), *some)
        return gradients.ghost(
            model.loss, model.params, (examples["x"], examples["label"])
        )

    oracle = gradients.streamed(load, N, chunk_size=4)
    cases.check(oracle, cases.rows(model.loss, model.params, model.examples))


def test_whole_and_streamed_understand_each_other():
    matrix = cases.normal(N, 7)
    whole = gradients.dense(matrix)
    load = lambda indices: gradients.dense(matrix[indices])
    oracle = gradients.streamed(load, N, chunk_size=4)
    atoms = jnp.array([3, 8])
    np.testing.assert_allclose(
        oracle.gram(whole.take(atoms)), whole.columns(atoms), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        oracle.corr(whole.mean()), whole.corr(oracle.mean()), rtol=1e-5, atol=1e-6
    )


def test_one_candidate():
    matrix = cases.normal(1, 7)
    oracle = gradients.streamed(lambda i: gradients.dense(matrix[i]), 1, chunk_size=4)
    assert oracle.dtype == np.float32
    np.testing.assert_allclose(oracle.diag(), (matrix**2).sum(1), rtol=1e-5)


def test_a_loader_that_returns_too_few_is_refused():
    matrix = cases.normal(N, 7)
    load = lambda indices: gradients.dense(matrix[indices][:2])
    with pytest.raises(ValueError, match=r"load\b.*\b2\b"):
        gradients.streamed(load, N, chunk_size=4).diag()


@pytest.mark.parametrize(("n", "chunk_size"), [(0, 4), (-1, 4), (9, 0), (9, -2)])
def test_sizes_are_checked(n, chunk_size):
    name = "n" if n < 1 else "chunk_size"
    with pytest.raises(ValueError, match=rf"\b{name} must be at least 1"):
        gradients.streamed(gradients.dense, n, chunk_size=chunk_size)
