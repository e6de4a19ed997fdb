"""Owners whose gradients lie in a store."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import gradients, market, match

KEY = jax.random.key(0)


@pytest.mark.parametrize("form", [{"rank": 1}, {"rank": None}], ids=["pairs", "whole"])
@pytest.mark.parametrize("method", ["grad_match", "func_feat"])
@pytest.mark.every(2)
def test_an_owner_answers_by_its_store(form, method, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(44, 5)).astype(np.float32)
    y = np.arange(44) % 2
    params = {"kernel": jnp.asarray(rng.normal(size=(5, 2)), jnp.float32)}

    def loss(params, example):
        pixels, label = example
        return -jax.nn.log_softmax(pixels @ params["kernel"])[label]

    store = gradients.write_store(
        tmp_path / "store", loss, params, (x[:40], y[:40]), key=KEY, **form
    )

    def oracle(rows, labels):
        if np.array_equal(rows, x[:40]):
            return store
        return store.project(loss, params, (rows, labels))

    model = market.OwnerModel(oracle=oracle, features=lambda rows: rows)
    asked = market.make_request(x[40:], y[40:], budget=6, method=method)
    sent = market.answer(asked, x[:40], y[:40], owner="o", model=model)
    arrays = store, oracle(x[40:], y[40:])
    if method == "func_feat":
        arrays = *arrays, x[:40], x[40:]
    labels = {"labels": y[:40], "hard_labels": y[40:]}
    wanted = getattr(match, method)(*arrays, 6, **labels)
    rows = np.asarray(wanted.indices[: len(wanted)])
    np.testing.assert_array_equal(np.sort(sent.x, axis=0), np.sort(x[rows], axis=0))
