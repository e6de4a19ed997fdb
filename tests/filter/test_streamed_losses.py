"""Losses of rows of a source: those of arrays, bit for bit."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from row_cases import ITERATORS, KINDS, D, N, arrays, make

import jaxsel
from jaxsel.data import open_rows
from jaxsel.filter import sample_losses, streamed_losses


def squared(params, example):
    x, y = example
    return jnp.sum((jnp.tanh(x @ params["w"]) - y) ** 2)


def norm(params, x):
    return jnp.sum(x @ params["w"])


PARAMS = {"w": np.random.default_rng(3).normal(size=(D, 3)).astype(np.float32)}


def same(mine, theirs):
    assert mine.dtype == theirs.dtype
    assert mine.tobytes() == theirs.tobytes()


@pytest.mark.every(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk_size", [1, 20, N, 500])
def test_of_every_kind(kind, chunk_size, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    if kind in ITERATORS:  # chunks of the size asked for, not of even sizes
        chunk_size = min(chunk_size, N)
        chunk_size = 1 if chunk_size == 20 else chunk_size
    expected = sample_losses(squared, PARAMS, (x, y), chunk_size=chunk_size)
    examples = (rows, rows.labels)
    same(streamed_losses(squared, PARAMS, examples, chunk_size=chunk_size), expected)


def test_rows_alone_in_trees_and_beside_arrays(tmp_path):
    x, y = arrays()
    rows = make("npy folder", tmp_path, x, y)
    same(streamed_losses(norm, PARAMS, rows), sample_losses(norm, PARAMS, x))
    weights = np.linspace(0, 1, N).astype(np.float32)
    named = lambda p, e: squared(p, (e["x"], e["y"])) * e["w"]
    expected = sample_losses(
        named, PARAMS, {"x": x, "y": y, "w": weights}, chunk_size=9
    )
    examples = {"x": rows, "y": open_rows(y), "w": weights}
    same(streamed_losses(named, PARAMS, examples, chunk_size=9), expected)
    part = rows.shard(1, 2)
    found = streamed_losses(squared, PARAMS, (part, part.labels))
    some = slice(part.begin, part.end)
    same(found, sample_losses(squared, PARAMS, (x[some], y[some])))


def test_rows_and_labels_are_read_together():
    x, y = arrays()
    read = []

    class Records:
        def __len__(self):
            return N

        def __getitem__(self, row):
            read.append(row)
            return x[row], y[row]

    rows = open_rows(Records(), features=0, labels=1)
    read.clear()
    streamed_losses(squared, PARAMS, (rows, rows.labels), chunk_size=10)
    assert read == list(range(N))


def test_devices(tmp_path):
    x, y = arrays()
    rows = make("columns", tmp_path, x, y)
    options = {"mesh": jaxsel.make_mesh(), "chunk_size": 24}
    expected = sample_losses(squared, PARAMS, (x, y), **options)
    same(streamed_losses(squared, PARAMS, (rows, rows.labels), **options), expected)


class Dies(Exception):
    pass


@pytest.mark.parametrize("kind", ["npy folder", "grain batches", "grain iterator"])
@pytest.mark.every(3)
def test_a_pass_that_was_cut_off_goes_on(kind, tmp_path, monkeypatch):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    examples = (rows, rows.labels)
    expected = streamed_losses(squared, PARAMS, examples, chunk_size=10)
    options = {"chunk_size": 10, "checkpoint": tmp_path / "c", "checkpoint_every": 2}
    chunks, asked = type(rows.source).chunks, []

    def mortal(self, chunk_size, begin, end, state):
        asked.append(json.loads(json.dumps(state))["row"])
        for chunk in chunks(self, chunk_size, begin, end, state):
            if chunk.start == 60:
                raise Dies
            yield chunk

    with monkeypatch.context() as patch:
        patch.setattr(type(rows.source), "chunks", mortal)
        for _ in range(2):
            with pytest.raises(Dies):
                streamed_losses(squared, PARAMS, examples, **options)
    assert asked == [0, 60]  # where the chunks that were used end
    same(streamed_losses(squared, PARAMS, examples, **options), expected)
    same(streamed_losses(squared, PARAMS, examples, **options), expected)
    other = {"w": PARAMS["w"] + 1}
    for change in (
        lambda: streamed_losses(squared, other, examples, **options),
        lambda: streamed_losses(norm, PARAMS, rows, **options),
        lambda: streamed_losses(
            squared, PARAMS, examples, **options | {"chunk_size": 9}
        ),
        lambda: (
            streamed_losses(squared, PARAMS, (rows, np.zeros(N)), **options)
            if rows.n
            else streamed_losses(norm, PARAMS, rows, **options)
        ),
    ):
        with pytest.raises(ValueError, match="holds a run with other data"):
            change()


def test_bad_input(tmp_path):
    x, y = arrays()
    rows = open_rows(x, labels=y)
    with pytest.raises(TypeError, match="examples must have Rows among them"):
        streamed_losses(squared, PARAMS, (x, y))
    with pytest.raises(ValueError, match="same number of rows, got 102, 103"):
        streamed_losses(squared, PARAMS, (rows, y[1:]))
    stream = make("grain iterator", tmp_path, x, y)
    with pytest.raises(ValueError, match="same number of rows, got 103, None"):
        streamed_losses(squared, PARAMS, (stream, y))
    with pytest.raises(ValueError, match="one entry a sample"):
        streamed_losses(squared, PARAMS, (rows, 3.0))
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        streamed_losses(squared, PARAMS, rows, chunk_size=0)
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1"):
        streamed_losses(norm, PARAMS, rows, checkpoint=tmp_path, checkpoint_every=0)
    with pytest.raises(TypeError, match="loss"):
        streamed_losses(3, PARAMS, rows)
    infinite = lambda p, v: jnp.where(v[0] == x[77, 0], jnp.inf, 0)
    with pytest.raises(ValueError, match="that of example 77 is inf"):
        streamed_losses(infinite, PARAMS, rows, chunk_size=10)
    x[50, 1] = np.nan
    with pytest.raises(ValueError, match="features must be finite, but row 50"):
        streamed_losses(norm, PARAMS, open_rows(x), chunk_size=10)


def test_the_samples_of_a_source_as_arrays_are(tmp_path):
    """`sample_losses` and oracles index rows as they do arrays."""
    x, y = arrays()
    rows = make("lists", tmp_path, x, y)
    found = sample_losses(squared, PARAMS, (rows, rows.labels), chunk_size=20)
    same(found, sample_losses(squared, PARAMS, (x, y), chunk_size=20))
    from jaxsel import gradients

    stream = gradients.streamed(lambda i: gradients.dense(rows[i]), N, chunk_size=20)
    whole = gradients.streamed(lambda i: gradients.dense(x[i]), N, chunk_size=20)
    direction = jax.random.normal(jax.random.key(0), (D,))
    np.testing.assert_array_equal(stream.corr(direction), whole.corr(direction))
    chosen = [5, 99, 0, 99]
    np.testing.assert_array_equal(
        stream.gram(stream.take(chosen)), whole.gram(whole.take(chosen))
    )
