"""Every function at the top level: kinds of arrays, JAX's flags, inside `jit`."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import top_level
from jax.experimental import sparse

import jaxsel

each = pytest.mark.parametrize("name", top_level.CALLS)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
X, Y, X_VAL, Y_VAL = top_level.samples()
X, X_VAL = X.astype(np.float32), X_VAL.astype(np.float32)


def test_every_function_has_a_call():
    assert top_level.discovered() == set(top_level.CALLS)


FLAGS = {
    "rank": lambda: jax.numpy_rank_promotion("raise"),
    "dtype": lambda: jax.numpy_dtype_promotion("strict"),
    "nans": lambda: jax.debug_nans(True),
    "x64": lambda: jax.enable_x64(True),
    "leaks": jax.checking_leaks,
    "bfloat16": lambda: jax.default_matmul_precision("bfloat16"),
    "numpy": lambda: np.errstate(all="raise"),
}


@pytest.mark.slow
@pytest.mark.left_out
@pytest.mark.parametrize("flag", FLAGS)
@each
def test_flags_change_nothing(name, flag):
    wanted = top_level.leaves(top_level.CALLS[name](*top_level.samples()))
    with FLAGS[flag]():
        result = top_level.leaves(top_level.CALLS[name](*top_level.samples()))
    for a, b in zip(result, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("flag", ["rank", "dtype"])
@pytest.mark.parametrize(
    "name", ["knn_shapley", "loo", "facility_location", "find_label_errors"]
)
@pytest.mark.every(6)
def test_strict_promotion(name, flag):
    with FLAGS[flag]():
        top_level.CALLS[name](*top_level.samples())


@each
def test_inside_jit_it_works_or_names_the_kernels(name):
    def step(total):
        top_level.CALLS[name](*top_level.samples())
        return total

    if name == "loss_threshold":  # by NumPy alone
        jax.jit(step)(1.0)
        return
    with pytest.raises(TypeError, match=r"is being traced by jit.*kernel"):
        jax.jit(step)(1.0)


@pytest.mark.left_out
def test_without_jit_coalitions_are_drawn_alike():
    from jaxsel import value

    rows = value._sampling.sized_coalitions(
        top_level.KEY, 0, 4, jnp.array([0.5, 1.0]), count=4, n=6
    )
    with jax.disable_jit():
        same = value._sampling.sized_coalitions(
            top_level.KEY, 0, 4, jnp.array([0.5, 1.0]), count=4, n=6
        )
    np.testing.assert_array_equal(rows, same)


@pytest.mark.parametrize("name", sorted(top_level.LABELLED))
@pytest.mark.parametrize("kind", ["list", "array", "series"])
def test_several_labels_a_sample_are_refused(name, kind):
    lists = [[0], [0, 1]] * 6
    objects = np.empty(12, object)
    objects[:] = lists
    y = {"list": lists, "array": objects, "series": pd.Series(lists)}[kind]
    with pytest.raises((TypeError, ValueError)) as error:
        top_level.CALLS[name](X, y, X_VAL, Y_VAL)
    assert "row 0 has a list" in str(error.value) or "labels" in str(error.value)
    if name == "knn_shapley":
        assert "multi-label data are not supported" in str(error.value)


# Kinds of arrays.


def torch_kinds(x):
    import torch

    dense = torch.tensor(x)
    return {
        "grad": dense.clone().requires_grad_(),
        "bfloat16": dense.bfloat16(),
        "sparse": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "rows": [row.clone().requires_grad_() for row in dense],
        "parameter": torch.nn.Parameter(dense),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "kind", ["grad", "bfloat16", "sparse", "csr", "rows", "parameter"]
)
def test_tensors(kind):
    pytest.importorskip("torch")
    x = X.astype(ml_dtypes.bfloat16).astype(np.float32)
    value = jaxsel.knn_shapley(torch_kinds(x)[kind], Y, X_VAL, Y_VAL, k=3).values
    wanted = jaxsel.knn_shapley(x, Y, X_VAL, Y_VAL, k=3).values
    np.testing.assert_array_equal(value, wanted)


class OnDevice:
    """An array on a device, of which NumPy can't make one by itself."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    @property
    def __cuda_array_interface__(self):
        return {}

    def get(self):
        return self.x


KINDS = {
    "BCOO": lambda x: sparse.BCOO.fromdense(jnp.asarray(x)),
    "BCSR": lambda x: sparse.BCSR.fromdense(jnp.asarray(x)),
    "objects": lambda x: x.astype(object),
    "Series of arrays": lambda x: pd.Series(list(x)),
    "column of lists": lambda x: pd.DataFrame({"e": x.tolist()}),
    "Arrow lists": lambda x: pa.table({"e": x.tolist()}),
    "polars arrays": lambda x: pl.DataFrame(
        {"e": pl.Series(x.tolist(), dtype=pl.Array(pl.Float32, x.shape[1]))}
    ),
    "Fortran": np.asfortranarray,
    "big-endian": lambda x: x.astype(">f4"),
    "matrix": np.matrix,
    "nullable": lambda x: pd.DataFrame(x).astype("Float32"),
    "CUDA": OnDevice,
    "not masked": lambda x: np.ma.masked_array(x),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["knn_shapley", "retrieve_nearest", "influence"])
@pytest.mark.every(40)
def test_kinds_of_arrays(name, kind):
    wanted = top_level.leaves(top_level.CALLS[name](X, Y, X_VAL, Y_VAL))
    make = KINDS[kind]
    both = make(X), make(X_VAL)
    result = top_level.leaves(top_level.CALLS[name](both[0], Y, both[1], Y_VAL))
    for a, b in zip(result, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


ragged = np.empty(12, object)
ragged[:] = [row[: 3 - (i == 4)] for i, row in enumerate(X)]
REFUSED = {
    "void": (X.astype(ml_dtypes.bfloat16).view("V2"), "view.ml_dtypes.bfloat16"),
    "fields": (np.zeros(12, [("a", float), ("b", int)]), "has the fields a, b"),
    "durations": (X.astype("m8[s]"), "dates with .*TableEncoder.*timedelta64"),
    "dates": (X.astype("M8[s]"), "dates with .*TableEncoder"),
    "lazy": (pl.DataFrame(X).lazy(), r"a LazyFrame: .* pass x.collect\(\)"),
    "generator": ((row for row in X), "must be an array, got a generator"),
    "ragged": (ragged, "row 4 has 2 numbers"),
    "ragged lists": (list(ragged), "row 4 has length 2, and row 0 length 3"),
    "text": (np.array([["a", "b"]] * 12), "must be numeric, got dtype <U1, 'a' in row"),
    "complex": (X + 1j, "must be real"),
    "masked rows": (
        [np.ma.masked_array(row, mask=[0, 1, 0]) for row in X],
        "masked entr",
    ),
    "missing": (np.where(X > 1, None, X), "must be finite, but row"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_array_of_numbers_is_named(kind):
    x, message = REFUSED[kind]
    if kind == "generator":
        x = (row for row in X)
    with pytest.raises((TypeError, ValueError), match=rf"\bx\b.*{message}"):
        jaxsel.knn_shapley(x, Y, X_VAL, Y_VAL, k=3)


def test_labels_as_objects_are_numbers():
    wanted = jaxsel.knn_shapley(X, Y, X_VAL, Y_VAL, k=3).values
    y = np.array([np.int64(label) for label in Y], object)
    np.testing.assert_array_equal(
        jaxsel.knn_shapley(X, y, X_VAL, Y_VAL, k=3).values, wanted
    )
    large = np.array([2**70 + int(label) for label in Y], object)
    with pytest.raises(ValueError, match="two classes or more, got one: 2"):
        jaxsel.find_label_errors(X, np.full(12, 2), folds=2)
    same = jaxsel.knn_shapley(X, large, X_VAL, large[:6], k=3).values
    np.testing.assert_array_equal(same, wanted)


@pytest.mark.left_out
def test_bytes_do_not_wrap_around():
    x = np.random.default_rng(0).integers(0, 256, (40, 3)).astype(np.uint8)
    wanted = x.astype(np.float64)
    near = ((wanted[:, None] - wanted[None, :6]) ** 2).sum(-1).argmin(0)
    chosen = jaxsel.pseudo_labels(x[:6], x, np.arange(40))
    np.testing.assert_array_equal(chosen, near)
    small = jaxsel.omp(x, wanted[3], 5).indices
    np.testing.assert_array_equal(small, jaxsel.omp(wanted, wanted[3], 5).indices)
