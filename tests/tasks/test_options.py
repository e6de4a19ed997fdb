"""The options that the applications share."""

import inspect
import typing

import jax
import pytest

from jaxsel import tasks
from jaxsel.tasks._options import DEFAULTS, TaskOptions

from . import application_cases as cases

FEW = ["n_val", "seeds", "embed", "progress"]
TRAINED = ["n", "n_val", "n_test", "learner", "seeds", "embed", "progress"]
OPTIONS = {
    "noisy_labels": FEW,
    "acquisition": FEW,
    "domain_adaptation": TRAINED,
    "pattern_watermark_detection": TRAINED,
    "instance_watermark_detection": TRAINED,
    "point_removal": [*DEFAULTS],
    "point_addition": [*DEFAULTS],
    "summarisation": [*DEFAULTS],
}
OTHERS = {
    "acquisition": {"n_val": 100},
    "domain_adaptation": {"n_val": 1000},
    "pattern_watermark_detection": {"learner": tasks.retrain_cnn()},
    "summarisation": {"balanced": True, "learner": tasks.retrain_mlp()},
}


def test_each_application_is_here():
    takes = lambda f: {*FEW} <= inspect.signature(f).parameters.keys()
    public = {k: f for k, f in vars(tasks).items() if inspect.isfunction(f)}
    assert {k for k, f in public.items() if takes(f)} == OPTIONS.keys()


def test_defaults_are_of_all_options():
    assert DEFAULTS.keys() == typing.get_type_hints(TaskOptions).keys()
    sizes, flags = ("n", "n_val", "n_test", "seeds"), ("balanced", "embed_learner")
    assert [DEFAULTS[name] for name in sizes] == [1000, 500, 1000, 10]
    assert not any(DEFAULTS[name] for name in (*flags, "embed", "progress"))
    assert DEFAULTS["learner"] == tasks.retrain_logistic()
    described = inspect.getdoc(TaskOptions).partition("Attributes:")[2]
    assert all(f"\n    {name}: " in described for name in DEFAULTS)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_in_the_signature(name):
    parameters = inspect.signature(getattr(tasks, name)).parameters
    defaults = {**DEFAULTS, **OTHERS.get(name, {})}
    shown = {p: parameters[p].default for p in OPTIONS[name]}
    assert shown == {p: defaults[p] for p in OPTIONS[name]}
    assert [p for p in parameters if p in OPTIONS[name]] == OPTIONS[name]
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@pytest.mark.parametrize("name", OPTIONS)
def test_other_keywords_are_refused_with_those_there_are(name):
    message = rf"^{name}\(\) got an unexpected keyword argument 'nval'; its options are"
    with pytest.raises(TypeError, match=f"{message} .*{', '.join(OPTIONS[name])}$"):
        getattr(tasks, name)(nval=3)


@pytest.mark.parametrize("name", ["noisy_labels", "point_removal", "point_addition"])
def test_an_embedding_that_saw_the_rows_warns_the_caller(name):
    x, y = cases.numbered(80)
    embed = tasks.train_embedding(x, y, kind="mlp", steps=1, key=jax.random.key(0))
    options = {"n": 20, "n_val": 10, "seeds": 1, "key": jax.random.key(1)}
    if name != "noisy_labels":
        options |= {"n_test": 10, "learner": cases.class_zero}
    with pytest.warns(UserWarning, match="embed was trained on 20 of the 20") as warned:
        getattr(tasks, name)(x, y, {"a": lambda x, y, *_: y}, embed=embed, **options)
    assert [w.filename for w in warned] == [__file__]
