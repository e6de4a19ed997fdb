"""Stores of gradients: written, killed and gone on with, asked, refused."""

import errno
import resource

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import data, gradients, match, retrieve
from jaxsel.gradients import _store_rows
from jaxsel.gradients._sketch import draw

N, KEY = cases.N, jax.random.key(0)
SMALL = {"key": KEY, "shard_size": 4, "chunk_size": 3}
PRODUCTS = {"rank": None, "dim": 6, "dtype": "float32"}


def write(folder, model=None, **options):
    model = model or cases.plain()
    some = {**SMALL, **options}
    return gradients.write_store(
        folder, model.loss, model.params, model.examples, **some
    )


def targets(store, model=None, rows=slice(0, 3)):
    model = model or cases.plain()
    part = jax.tree.map(lambda leaf: leaf[rows], model.examples)
    return store.project(model.loss, model.params, part, chunk_size=3)


def stored(store):
    return np.asarray(store.take(slice(None)).gradients, np.float64)


def matrices(model, layers):
    """Return each layer's gradients `[n, in, out]` in float64, written out."""
    with jax.enable_x64(True):
        wide = cases.widen((model.params, model.examples))
        grads = jax.jit(jax.vmap(jax.grad(model.loss), (None, 0)))(*wide)
        paths, _ = jax.tree_util.tree_flatten_with_path(grads)
        by_path = {
            jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
            for path, leaf in paths
        }
    written = []
    for layer in layers:
        rows = by_path[layer.path].reshape(N, -1, layer.outputs)
        if layer.bias:
            bias = by_path[layer.path.replace("kernel", "bias")]
            rows = np.concatenate([rows, bias[:, None]], axis=1)
        written.append(rows)
    return written


def projected(model, layers):
    """Return each layer's gradients between its projections, `[n, p, q]`."""
    parts = []
    pairs = draw(layers, KEY)
    for rows, pair in zip(matrices(model, layers), pairs, strict=True):
        first, second = (
            np.eye(size) if side is None else np.asarray(side, np.float64)
            for side, size in zip(pair, rows.shape[1:], strict=True)
        )
        parts.append(np.einsum("nio,ip,oq->npq", rows, first, second))
    return parts


def flat(parts):
    return np.concatenate([part.reshape(N, -1) for part in parts], axis=1)


def tied():
    """An autoencoder with one kernel, used as it is and transposed."""

    def loss(params, example):
        hidden = jnp.tanh(example @ params["kernel"])
        return jnp.sum((hidden @ params["kernel"].T - example) ** 2)

    kernel = {"kernel": cases.normal(cases.IN, cases.HIDDEN)}
    return cases.Model(loss, kernel, cases.normal(N, cases.IN, seed=1))


MODELS = {
    "plain": cases.plain,
    "sequence": cases.sequence,
    "convolution": cases.convolution,
    "tied": tied,
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", MODELS)
def test_products_are_those_of_gradients_that_were_written_out(name, tmp_path):
    model = MODELS[name]()
    store = write(tmp_path / "store", model, **PRODUCTS)
    expected = flat(projected(model, store.layers))
    assert len(store) == store.n == N
    assert store.nbytes == 4 * expected.size
    assert max(layer.size for layer in store.layers) <= 6
    scale = np.abs(expected).max()
    np.testing.assert_allclose(stored(store), expected, rtol=1e-4, atol=1e-5 * scale)
    cases.check(store, expected)


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_numbers_are_rounded_to_the_type_of_the_store(dtype, error, tmp_path):
    exact = stored(write(tmp_path / "exact", **PRODUCTS))
    store = write(tmp_path / dtype, **PRODUCTS | {"dtype": dtype})
    np.testing.assert_allclose(stored(store), exact, rtol=error, atol=1e-6)
    assert np.abs(stored(store) - exact).max() > 0
    assert store.nbytes == 2 * exact.size


def test_factors_of_layers_that_are_applied_once_lose_nothing(tmp_path):
    model = cases.plain()
    store = write(tmp_path / "store", model, dim=64, dtype="float32")
    assert {layer.rank for layer in store.layers} == {1}
    cases.check(store, flat(matrices(model, store.layers)))


@pytest.mark.parametrize("rank", [1, pytest.param(2, marks=pytest.mark.left_out)])
def test_factors_of_sequences_are_nearly_the_best(rank, tmp_path):
    model = cases.sequence()
    store = write(tmp_path / "store", model, dim=40, rank=rank, dtype="float32")
    every = store.take(slice(None)).layers
    exact = projected(model, store.layers)
    for layer, factors, products in zip(store.layers, every, exact, strict=True):
        inputs = factors.inputs.reshape(N, layer.rank, -1)
        deltas = factors.deltas.reshape(N, layer.rank, -1)
        rebuilt = np.einsum("ncp,ncq->npq", inputs, deltas)
        u, s, v = np.linalg.svd(products)
        best = (u[:, :, :rank] * s[:, None, :rank]) @ v[:, :rank]
        error, least = (
            np.linalg.norm(products - near, axis=(1, 2)) for near in (rebuilt, best)
        )
        assert np.all(error <= 1.02 * least + 1e-5 * s[:, 0])


def test_projections_are_scaled_random_subspaces(tmp_path):
    layers = write(tmp_path / "store", **PRODUCTS).layers
    sides = [(side, one) for one in draw(layers, KEY) for side in one]
    for side, _ in sides:
        full, kept = side.shape
        np.testing.assert_allclose(
            side.T @ side, full / kept * np.eye(kept), rtol=1e-5, atol=1e-5
        )
    # Over keys they estimate inner products without bias.
    mean = np.mean(
        [
            np.asarray(side @ side.T)
            for key in jax.random.split(KEY, 100)
            for side in [draw(layers[:1], key)[0][0]]
        ],
        axis=0,
    )
    np.testing.assert_allclose(mean, np.eye(len(mean)), atol=0.4)


class Recorder:
    """Examples that remember what was read, and fail from a row on."""

    def __init__(self, array, last=N):
        self.array, self.last, self.read = np.asarray(array), last, []
        self.shape, self.dtype = self.array.shape, self.array.dtype

    def __getitem__(self, rows):
        self.read.append((rows.start, rows.stop))
        if rows.stop > self.last:
            raise KeyboardInterrupt
        return self.array[rows]


def recorded(model, last=N):
    examples = jax.tree.map(lambda leaf: Recorder(leaf, last), model.examples)
    return cases.Model(model.loss, model.params, examples)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_killed_call_goes_on_after_the_last_shard(tmp_path):
    whole = write(tmp_path / "whole").folder
    folder, model = tmp_path / "store", cases.plain()
    with pytest.raises(KeyboardInterrupt):
        write(folder, recorded(model, last=6))
    assert sorted(contents(folder)) == ["shard-000000.npy", "store.json"]
    with pytest.raises(ValueError, match="unfinished: it has 1 of 3 shards"):
        gradients.open_store(folder)
    for name in (".77.shard-000001.npy", ".77.store.json"):
        (folder / name).write_bytes(b"half of it")
    again = recorded(model)
    write(folder, again)
    computed = {rows for rows in again.examples[0].read if rows != (0, 4)}
    assert min(start for start, stop in computed if stop > 1) == 4
    assert contents(folder) == contents(whole)
    finished = recorded(model)
    write(folder, finished)
    assert {(0, 1), (0, 4), (4, 8), (8, 9)} == {*finished.examples[0].read}


def test_a_shard_that_was_removed_is_computed_again(tmp_path):
    folder = write(tmp_path / "store").folder
    before = contents(folder)
    (folder / "shard-000001.npy").unlink()
    write(folder)
    assert contents(folder) == before


def test_memory_is_bounded_by_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(_store_rows, "_HASHED", 2)
    model = recorded(cases.plain())
    store = write(tmp_path / "store", model)
    assert max(stop - start for start, stop in model.examples[0].read) <= 3
    opened, asked = gradients.open_store(store.folder, chunk_size=2), []
    load = opened.load
    opened.load = lambda rows: asked.append(len(rows)) or load(rows)
    goal = targets(store)
    for call in (opened.diag, lambda: opened.scores(goal, damping=0.1)):
        call()
    opened.top(goal, 4)
    assert max(asked) <= 2
    assert isinstance(opened._shards[0].base, np.memmap)


def other_loss(params, example):
    return 2 * cases.plain_loss(params, example)


def changed(model, **fields):
    return cases.Model(**{**vars(model), **fields})


def doubled(params):
    return jax.tree.map(lambda leaf: 2 * leaf, params)


def other_last(leaf):
    leaf = np.array(leaf)
    leaf[3] = leaf[2]
    return leaf


OTHERS = {
    "params": lambda m: (changed(m, params=doubled(m.params)), {}),
    "loss": lambda m: (changed(m, loss=other_loss), {}),
    "examples": lambda m: (
        changed(m, examples=jax.tree.map(other_last, m.examples)),
        {},
    ),
    "key": lambda m: (m, {"key": jax.random.key(1)}),
    "layers": lambda m: (m, {"dim": 4}),
    "dtype": lambda m: (m, {"dtype": "float32"}),
    "paths": lambda m: (m, {"wrt": "dense1/*"}),
    "shard_size": lambda m: (m, {"shard_size": 5}),
    "n": lambda m: (changed(m, examples=(m.examples[0][:8], m.examples[1][:8])), {}),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "begun"
    with pytest.raises(KeyboardInterrupt):
        write(folder, recorded(cases.plain(), last=6))
    return folder


@pytest.mark.parametrize("what", OTHERS)
def test_a_store_of_something_else_is_refused(what, begun):
    model, options = OTHERS[what](cases.plain())
    before = contents(begun)
    with pytest.raises(ValueError, match=rf"\b{what}\b.*choose another folder"):
        write(begun, model, **options)
    assert contents(begun) == before


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"must be empty.*notes\.txt"):
        write(tmp_path)
    with pytest.raises(FileExistsError, match=r"notes\.txt"):
        write(tmp_path / "notes.txt")


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limits")
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    """A limit on files stands for the disk."""
    folder = tmp_path / "store"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as full:
            write(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.value.errno == errno.EFBIG
    assert full.value.filename == str(folder / "shard-000000.npy")
    assert not folder.exists()
    write(folder)


def huge_loss(params, example):
    return 1e6 * cases.plain_loss(params, example)


def test_gradients_that_no_file_can_hold_are_refused_by_their_row(tmp_path):
    model = cases.plain()
    x, y = model.examples
    x = x.copy()
    x[5] = np.nan
    with pytest.raises(ValueError, match=r"row 5 has NaN or infinity: leave it out"):
        write(tmp_path / "nan", changed(model, examples=(x, y)))
    options = PRODUCTS | {"dtype": "float16"}
    with pytest.raises(ValueError, match=r"row 0 has numbers beyond float16"):
        write(tmp_path / "huge", changed(model, loss=huge_loss), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["nan"]  # its first shard


def test_rows_of_files_are_examples(tmp_path):
    model = cases.plain()
    x, y = model.examples
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    rows = data.open_rows(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    first = write(tmp_path / "store")
    # The same examples, so that the store is finished already.
    again = write(first.folder, changed(model, examples=(rows, np.asarray(y))))
    np.testing.assert_array_equal(again.diag(), first.diag())


def test_a_target_alone_is_as_in_a_batch(tmp_path):
    model = cases.sequence()
    store = write(tmp_path / "store", model, dim=40, dtype="float32")
    batch = jax.tree.leaves(targets(store, model, slice(0, 5)))
    alone = jax.tree.leaves(targets(store, model, slice(2, 3)))
    for ours, theirs in zip(alone, batch, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours[0], theirs[2], rtol=1e-5, atol=1e-6 * scale)


@pytest.mark.parametrize("form", [PRODUCTS, {"dim": 64, "dtype": "float32"}])
def test_scores_are_those_of_rows_in_memory(form, tmp_path):
    model = cases.plain()
    store = write(tmp_path / "store", model, **form)
    goal = targets(store)
    parts = projected(model, store.layers)
    products, solved = np.zeros((3, N)), np.zeros((3, N))
    for part in parts:
        rows = part.reshape(N, -1)
        square = rows.T @ rows / N
        damped = square + 0.1 * np.trace(square) / len(square) * np.eye(len(square))
        products += rows[:3] @ rows.T
        solved += rows[:3] @ np.linalg.solve(damped, rows.T) / N
    for damping, expected in ((None, products), (0.1, solved)):
        atol = 1e-5 * np.abs(expected).max()
        scores = store.scores(goal, damping=damping, reduce=None)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=atol)
        mean = store.scores(goal, damping=damping)
        np.testing.assert_allclose(mean, expected.mean(0), rtol=1e-4, atol=atol)
        assert (mean.count, mean.reduce, scores.reduce) == (3, "mean", None)
        rows, best = store.top(goal, 4, damping=damping)
        order = np.argsort(-expected, axis=1)[:, :4]
        np.testing.assert_array_equal(rows, order)
        values = np.take_along_axis(expected, order, 1)
        np.testing.assert_allclose(best, values, rtol=1e-4, atol=atol)


def test_of_equal_scores_the_lower_row_is_first(tmp_path):
    x, y = cases.examples()
    same = np.repeat(x[:1], N, axis=0), np.repeat(y[:1], N)
    store = write(tmp_path / "store", changed(cases.plain(), examples=same))
    opened = gradients.open_store(store.folder, chunk_size=2)
    assert opened.top(targets(store), 5)[0].tolist() == [[0, 1, 2, 3, 4]] * 3


def test_choosers_take_it_as_they_take_rows(tmp_path):
    store = write(tmp_path / "store", **PRODUCTS)
    goal = targets(store)
    rows = stored(store).astype(np.float32)
    ours, theirs = match.omp(store, goal.mean(), 3), match.omp(rows, goal.mean(), 3)
    assert list(ours) == list(theirs)


@pytest.mark.left_out
def test_coordinates_of_a_target_are_those_of_rows(tmp_path):
    store = write(tmp_path / "store", **PRODUCTS)
    goal, rows = targets(store), stored(store).astype(np.float32)
    ours, theirs = (
        retrieve.target_coordinates(candidates, target, rank=2).candidates
        for candidates, target in ((store, goal), (rows, goal.gradients))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.left_out
def test_a_layer_that_no_sample_moves_has_scores_of_zero(tmp_path):
    model = cases.plain()
    params = {
        **model.params,
        "dense2": jax.tree.map(jnp.zeros_like, model.params["dense2"]),
    }
    model = changed(model, params=params)  # nothing reaches the first layer
    store = write(tmp_path / "store", model, wrt="dense1/*")
    goal = targets(store, model)
    assert not np.any(store.scores(goal)) | np.any(store.scores(goal, damping=0.1))


REFUSED = {
    "dim": {"dim": 0},
    "rank": {"rank": 33},
    "dtype": {"dtype": "int8"},
    "shard_size": {"shard_size": 0},
    "chunk_size": {"chunk_size": 0},
    "wrt": {"wrt": "dense9/*"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_are_checked(name, tmp_path):
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        write(tmp_path / "store", **REFUSED[name])
    assert not (tmp_path / "store").exists()


def test_kinds_of_arguments_are_checked(tmp_path):
    model = cases.plain()
    with pytest.raises(TypeError, match=r"folder must be a path, got 3"):
        write(3)
    with pytest.raises(TypeError, match=r"key must be a key"):
        write(tmp_path / "store", key=0)
    for examples in ((), (np.ones((3, 2)), np.ones(2)), (np.ones(()),), [1.0]):
        with pytest.raises(ValueError, match=r"examples must be one or more arrays"):
            write(tmp_path / "store", changed(model, examples=examples))
    with pytest.raises(FileNotFoundError, match=r"holds no store"):
        gradients.open_store(tmp_path)
    assert not (tmp_path / "store").exists()


def test_targets_of_something_else_are_refused(tmp_path):
    model = cases.plain()
    store = write(tmp_path / "store", **PRODUCTS)
    with pytest.raises(ValueError, match=r"params must be those"):
        targets(store, OTHERS["params"](model)[0])
    assert len(targets(store, changed(model, loss=other_loss))) == 3

    def shallow(params, example):
        return cases.cross_entropy(example[0][:3], example[1]) + jnp.sum(
            example[0] @ params["dense1"]["kernel"]
        )

    with pytest.raises(ValueError, match=r"loss must have the layers of"):
        targets(store, changed(model, loss=shallow))
    nan = changed(model, examples=(np.nan * model.examples[0], model.examples[1]))
    with pytest.raises(ValueError, match=r"finite gradients.* row 0 "):
        targets(store, nan)
    goal = targets(store)
    for wrong in (
        gradients.dense(np.ones((3, 2))),
        gradients.factored(*2 * [np.eye(3)]),
    ):
        with pytest.raises((TypeError, ValueError), match=r"targets must be"):
            store.scores(wrong)
    for damping in (0, -1, np.nan):
        with pytest.raises(ValueError, match=r"damping must be finite and above zero"):
            store.scores(goal, damping=damping)
    for k in (0, N + 1):
        with pytest.raises(ValueError, match=r"k must be at (least 1|most 9), got"):
            store.top(goal, k)
    with pytest.raises(ValueError, match="reduce"):
        store.scores(goal, reduce="max")


def test_targets_of_another_store_of_equal_shapes_are_refused(tmp_path):
    store = write(tmp_path / "a")
    other = write(tmp_path / "b", key=jax.random.key(1))
    for ask in (store.scores, lambda goal: store.top(goal, 2)):
        with pytest.raises(ValueError, match="got those of a store with other"):
            ask(targets(other))
    again = gradients.open_store(tmp_path / "a")  # the same store, opened twice
    np.testing.assert_array_equal(
        again.scores(targets(store)).values, store.scores(targets(again)).values
    )


def test_a_bar_counts_chunks(tmp_path, capsys):
    write(tmp_path / "store", progress=True)
    assert "Gradients" in capsys.readouterr().err
