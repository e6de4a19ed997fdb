"""Proxies of a real encoder in SPU's rings."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from spu_parties import KINDS, WIDE, play, score

from jaxsel.models import available_models, load_target, tokenize
from jaxsel.proxy import (
    Proxy,
    Spec,
    embed,
    emulate,
    prune,
    target_manifest,
    with_bounds,
)
from jaxsel.proxy._probe import Probe
from jaxsel.proxy.families import ATTENTIONS, NORMS
from mpc_bridge._scoring import most_fraction_bits

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]
LENGTH, FITTED, SCORED = 32, 64, 48


@functools.cache
def texts():
    """Return MiniLM with two classes, and lines of the licence, embedded."""
    folder = {model.name: model.path for model in available_models()}["minilm"]
    if folder is None:
        pytest.skip("minilm is not prepared: run `jaxsel models prepare minilm`")
    target = load_target(folder, n_classes=2, read="cls", rngs=nnx.Rngs(0))
    licence = Path(__file__).parents[2] / "LICENSE"  # a text that nobody edits
    lines = [line for line in licence.read_text().split("\n") if len(line.split()) >= 5]
    rng = np.random.default_rng(0)
    lines = [lines[i] for i in rng.permutation(len(lines))[: FITTED + SCORED]]
    x, mask = embed(target, tokenize(lines, target.tokenizer, length=LENGTH))
    return target, x, mask


def made(attention, norm):
    """Return a proxy of one layer whose margins are a few, as a trained one's are."""
    target, x, mask = texts()
    spec = Spec(1, 12, attention=attention, norm=norm, hidden=8)
    manifest = target_manifest(spec, target, n_classes=2, length=LENGTH)
    proxy = prune(target, manifest)
    (proxy,) = emulate(
        [proxy], x[:FITTED], mask[:FITTED], key=jax.random.key(0), n_points=20_000
    )
    width = target.config.hidden
    weight = np.random.default_rng(1).normal(size=(width, 2)).astype(np.float32)
    head = lambda factor: Probe((factor * weight,), (np.zeros(2, np.float32),))
    with_head = lambda factor: Proxy(
        proxy.manifest, proxy.params | {"head": head(factor)}
    )
    logits = np.asarray(with_head(np.float32(1)).logits(x, mask))
    proxy = with_head(np.float32(6 / np.ptp(logits[:, 1] - logits[:, 0])))
    return with_bounds(proxy, x[:FITTED], mask[:FITTED])


@pytest.mark.parametrize("engine", ["spu-aby3", WIDE])
@pytest.mark.parametrize(
    ("attention", "norm"),
    [
        *((name, "polynomial") for name in ATTENTIONS),
        *(("uniform", name) for name in NORMS if name != "polynomial"),
    ],
)
def test_scores_are_those_of_the_clear_proxy_or_refused(attention, norm, engine):
    proxy, kind = made(attention, norm), KINDS[engine]
    made_of = [(proxy.manifest, proxy.arrays())]
    if attention == "polynomial":  # its weights are too far apart here
        with pytest.raises(ValueError, match=r"layers\.0.* may reach"):
            most_fraction_bits(kind, made_of)
        return
    bits = most_fraction_bits(kind, made_of)
    _, x, mask = texts()
    x, mask = x[FITTED:], mask[FITTED:]
    expected = np.asarray(proxy.scores(proxy.logits(x, mask)))
    # SPU's own roots and exponentials are off by more than rounding.
    near = 1e-5 if engine == WIDE else 2e-4
    near = 1e-3 if "exact" in (attention, norm) else near
    for found in play(engine, score, proxy, x, mask, bits=bits):
        if found is not None:
            assert np.abs(found - expected).max() <= near * np.ptp(expected)
