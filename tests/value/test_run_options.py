"""The options that values by retraining share."""

import inspect
import itertools
import typing

import jax
import pytest

from jaxsel import value
from jaxsel.value import _run
from jaxsel.value._run_options import DEFAULTS, RunOptions

from .games import Game

KEY = jax.random.key(0)
EVERY = ["batch_size", "mesh", "axis", "progress"]
OPTIONS = {
    **dict.fromkeys(
        (
            "tmc_shapley",
            "beta_shapley",
            "banzhaf",
            "group_testing_shapley",
            "adjusted_semivalue",
            "estimate_semivalue",
        ),
        ["owners", *EVERY, "checkpoint", "executor"],
    ),
    **dict.fromkeys(("data_oob", "g_shapley"), [*EVERY, "checkpoint", "executor"]),
    **dict.fromkeys(("loo", "exact_shapley", "exact_semivalue"), ["owners", *EVERY]),
}


def test_defaults_are_of_all_options():
    assert DEFAULTS.keys() == typing.get_type_hints(RunOptions).keys()
    assert {*map(repr, DEFAULTS.values())} == {"None", "False"}  # as its docstring says
    assert DEFAULTS["progress"] is False
    described = inspect.getdoc(RunOptions).partition("Attributes:")[2]
    assert all(f"\n    {name}: " in described for name in DEFAULTS)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_in_the_signature(name):
    parameters = inspect.signature(getattr(value, name)).parameters
    shared = [parameters[p] for p in parameters if p in DEFAULTS]
    assert [p.name for p in shared] == OPTIONS[name]
    assert [p.default for p in shared] == [DEFAULTS[p.name] for p in shared]
    assert {p.kind for p in shared} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters["mesh"].annotation == "jax.sharding.Mesh | None"
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@pytest.mark.parametrize("name", OPTIONS)
def test_other_keywords_are_refused_with_those_there_are(name):
    message = (
        rf"^{name}\(\) got an unexpected keyword argument 'batchsize'; its options "
    )
    with pytest.raises(TypeError, match=f"{message}are .*{', '.join(OPTIONS[name])}$"):
        getattr(value, name)(batchsize=3)
    for other in DEFAULTS.keys() - {*OPTIONS[name]}:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{other}'"):
            getattr(value, name)(**{other: None})


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_missing_is_named(name):
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing .* required positional"):
        getattr(value, name)()


def test_a_key_is_missing():
    message = r"^banzhaf\(\) missing 1 required keyword-only argument: 'key'$"
    with pytest.raises(TypeError, match=message):
        value.banzhaf(Game(3))


def test_a_run_out_of_time_warns_the_caller(monkeypatch):
    monkeypatch.setattr(_run, "_clock", itertools.count(0, 10).__next__)
    with pytest.warns(UserWarning, match="all values are NaN") as warned:
        value.tmc_shapley(Game(3), key=KEY, stop=value.MaxTime(1), batch_size=1)
    assert [w.filename for w in warned] == [__file__]
