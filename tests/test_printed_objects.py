"""What public objects print: short, whatever they hold; and how results compare."""

import copy
import dataclasses
import inspect
import pickle

import numpy as np
import pytest
import top_level

import jaxsel
from jaxsel import data, filter as filters, proxy, tables, value
from jaxsel._inputs.show import show_fields
from jaxsel.market._schema import Schema

MOST = 300


def classes():
    """Return the public classes of all rooms, by name."""
    rooms = [jaxsel, *(getattr(jaxsel, room) for room in jaxsel._ROOMS)]
    return {
        f"{item.__module__}.{name}": item
        for room in rooms
        for name, item in vars(room).items()
        if not name.startswith("_")
        and inspect.isclass(item)
        and item.__module__.startswith("jaxsel")
        and not issubclass(item, (BaseException, dict))
        and not getattr(item, "_is_protocol", False)
    }


CLASSES = classes()
BY_FIELDS = {name for name, item in CLASSES.items() if item.__repr__ is show_fields}
OF_USERS = {
    "FlaxLearner",
    "SklearnLearner",
    "FunctionUtility",
    "OwnerUtility",
    "Recipe",
}
"""Name what a user passed, as that prints itself."""
ALLOWED = {"KNN", "Retrain", "ExactEntropy"}
"""Hold a few numbers, or nothing."""
MODULES = {"CNN", "Classifier", "Encoder", "EncoderLayer", "MLP"}
"""Models, which Flax prints as trees of their parameters."""


def is_scalar(kind):
    text = str(getattr(kind, "__name__", kind))
    parts = {part.strip() for part in text.split("|")}
    literal = all(part.startswith("Literal") for part in parts)
    return literal or parts <= {"int", "float", "bool", "str", "None", "Metric"}


def fields(item):
    """Return the types of the fields of a dataclass or a named tuple, by name."""
    if dataclasses.is_dataclass(item):
        shown = (field for field in dataclasses.fields(item) if field.repr)
        return {field.name: field.type for field in shown}
    return dict.fromkeys(getattr(item, "_fields", ()))


@pytest.mark.parametrize("name", sorted(BY_FIELDS))
def test_objects_are_short_whatever_they_hold(name):
    item = CLASSES[name]
    large = {
        "array": np.zeros((1000, 1000)),
        "dict": {f"key {i}": np.zeros(9) for i in range(9000)},
        "nested": tuple((i, [i] * 99) for i in range(4)),
        "text": "x" * 9000,
    }
    for thing in large.values():
        if issubclass(item, tuple):
            made = item(*[thing] * len(item._fields))
        else:
            made = object.__new__(item)
            for field in fields(item):
                object.__setattr__(made, field, thing)
        assert len(repr(made)) <= MOST
        assert repr(made).startswith(f"{item.__name__}(")


def test_every_public_class_prints_itself_shortly():
    """A new class takes `brief`, or a repr and an entry in `examples` below."""
    for name, item in CLASSES.items():
        short = name.rpartition(".")[2]
        if name in BY_FIELDS or short in OF_USERS | MODULES:
            continue
        kinds = fields(item).values()
        written = any(
            "def __repr__" in inspect.getsource(base)
            for base in item.__mro__
            if base.__module__.startswith("jaxsel")
        )
        of_scalars = dataclasses.is_dataclass(item) and all(map(is_scalar, kinds))
        of_others = item.__repr__.__module__.startswith(("sklearn", "flax"))
        assert item.__repr__ is not object.__repr__, name
        assert written or of_scalars or of_others or short in ALLOWED, name


def examples():
    x, y, x_val, y_val = top_level.samples()
    few = {n: top_level.CALLS[n] for n in ("knn_shapley", "omp", "find_label_errors")}
    yield from (call(x, y, x_val, y_val) for call in few.values())
    clients = [f"client {i}" for i in range(9000)]
    yield filters.filter_server(np.arange(9.0), clients)
    yield tables.TableEncoder()
    yield filters.loss_threshold(np.arange(99.0), np.arange(9999.0))
    yield data.open_rows(np.zeros((9999, 3)))
    yield proxy.Spec(layers=2, heads=2)
    yield Schema
    yield value.LogisticRegression()
    yield jaxsel.labels.confident_joint(np.full((40, 2), 0.5), np.arange(40) % 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_examples_are_short():
    for thing in examples():
        assert len(repr(thing)) <= MOST, type(thing)
        assert " object at 0x" not in repr(thing)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["knn_shapley", "omp", "herding", "loss_threshold"])
def test_results_compare_by_content(name):
    a, b = (top_level.CALLS[name](*top_level.samples()) for _ in range(2))
    other = top_level.CALLS[name](*top_level.samples(1))
    assert a == b
    assert a != other
    assert a != 1
    assert copy.deepcopy(a) == a == pickle.loads(pickle.dumps(a))  # noqa: S301
    unknown = dataclasses.replace(jaxsel_values(), values=np.array([np.nan, 1.0]))
    assert unknown == dataclasses.replace(unknown, values=np.array([np.nan, 1.0]))
    with pytest.raises(TypeError, match="unhashable"):
        hash(jaxsel_values())


def jaxsel_values():
    return jaxsel.Values(values=np.array([0.0, 1.0]), count=np.array(1))
