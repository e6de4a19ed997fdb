"""Making requests: their ids, and what they can't be made of."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxsel.market import answer, make_request
from jaxsel.market._schema import Schema

from .cases import HARD, HARD_F, HARD_Y, F, X, Y, request


def test_ids_are_random():
    ids = {make_request(HARD, budget=1).id for _ in range(20)}
    ids |= {request(key=jax.random.key(i)).id for i in range(20)}
    assert len(ids) == 40
    assert request().id == request().id
    assert all(len(bytes.fromhex(i)) == 16 for i in ids)


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((), {}, "x or features must be given"),
        ((HARD,), {"budget": 0}, "budget must be at least 1"),
        ((HARD,), {"budget": 1_000_001}, "budget must be at most 1000000 samples"),
        ((HARD,), {"method": "steal"}, "method must be one of"),
        ((HARD, HARD_Y[:3]), {}, "must have the same length"),
        ((HARD * np.nan,), {}, "x must be finite"),
        ((HARD[0],), {}, r"x must have shape \[n, d\]"),
        ((HARD[:0],), {}, r"x must have shape \[n, d\]"),
        ((HARD.astype(complex),), {}, "x must hold real numbers or texts"),
        ((np.full((2, 2), None),), {}, "x must hold real numbers or texts"),
        (([None, "a"],), {}, "x must hold numbers or texts"),
        ((HARD, HARD_Y + 0.5), {}, "y must hold classes, .* got 0.5"),
        ((HARD, HARD_Y + np.inf), {}, "y must hold classes, .* got inf"),
        ((HARD, HARD_Y * 1e300), {}, "y must hold classes, .* got 1e"),
        ((HARD, HARD_Y + np.uint64(2**63)), {}, "y must hold classes, .* got 9.22"),
        (
            (HARD[:2], ["a" * 1000, "b"]),
            {"classes": [f"{i:05d}" + "a" * 995 for i in range(20_000)]},
            "classes must fit 67108864 bytes",
        ),
        ((HARD, HARD_Y), {"classes": [0, 1]}, "y must hold classes of the request"),
        ((HARD,), {"classes": [0, 1]}, "classes must not be given without y"),
        ((HARD,), {"features": HARD_F[:, 0]}, r"features must have shape \[n, d\]"),
        ((HARD,), {"features": np.full((12, 2), 1e300)}, "features must be finite"),
        ((HARD,), {"features": HARD_F[:2]}, "must have the same length"),
        ((HARD,), {"columns": ["a"]}, "columns must name the columns"),
        ((HARD,), {"sample_shape": (2,)}, "requests without x"),
        ((None,), {"features": HARD_F, "sample_shape": (2,)}, "must come together"),
    ],
)
def test_requests_refuse(arguments, options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make_request(*arguments, **({"budget": 2} | options))


def test_texts_have_one_name():
    with pytest.raises(ValueError, match="sample_dtype is unknown: '<U5'"):
        Schema(sample_shape=(2,), sample_dtype="<U5")


def test_length():
    shown = make_request(HARD, HARD_Y, budget=3)
    hidden = make_request(None, HARD_Y, features=HARD_F, budget=3)
    assert len(shown) == len(hidden) == len(HARD)


def test_samples_of_another_byte_order_are_converted():
    key = jax.random.key(0)
    asked = make_request(HARD.astype(">f4"), HARD_Y, budget=3, key=key)
    assert asked.x.dtype.isnative
    found = answer(asked, X.astype(">f4"), Y, owner="north")
    again = answer(
        make_request(HARD, HARD_Y, budget=3, key=key),
        X.astype(np.float32),
        Y,
        owner="north",
    )
    assert found.x.dtype.isnative
    np.testing.assert_array_equal(found.x, again.x)


def test_features_and_their_length_come_together():
    with pytest.raises(ValueError, match="n_features of the schema must be that of"):
        dataclasses.replace(request(), features=None)
    schema = request(features=None).schema
    with pytest.raises(ValueError, match="features must not be given: the schema has"):
        schema.check_features("features", HARD_F)
    with pytest.raises(ValueError, match="features must not be given: the request has"):
        answer(request(features=None), X, Y, owner="north", features=F)
