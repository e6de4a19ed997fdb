"""Low-rank updates: what they compute, train to, merge into, and refuse."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxsel import gradients, select_for_finetuning
from jaxsel.models import (
    Classifier,
    EncoderConfig,
    Target,
    Tokens,
    add_lora,
    finetune,
    merge_lora,
    minimise,
)

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
CONFIG = EncoderConfig(
    kind="text", layers=2, heads=2, hidden=8, intermediate=16, vocab=20, positions=12
)
TOKENS = Tokens(
    RNG.integers(0, 20, (6, 5)).astype(np.int32),
    np.arange(5) < RNG.integers(2, 6, (6, 1)),
)
LABELS = np.array([0, 1, 2, 0, 1, 2])
ATTENTION = ["*/query/kernel", "*/value/kernel"]


def moved(params, scale=0.3):
    """Return parameters away from the start, where B is 0."""
    leaves, form = jax.tree.flatten(params)
    keys = jax.random.split(KEY, len(leaves))
    draws = [jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    return form.unflatten([a + scale * d for a, d in zip(leaves, draws, strict=True)])


GRAPHDEF, START = nnx.split(
    Classifier(CONFIG, 3, read="mean", rngs=nnx.Rngs(0)), nnx.Param
)
PLAIN = GRAPHDEF, moved(START, scale=0.1)  # of biases that are not 0


def output(graphdef, params, inputs):
    return nnx.merge(graphdef, params)(inputs)


def flat(params):
    return {"/".join(map(str, k)): v[...] for k, v in nnx.to_flat_state(params)}


def test_the_start_is_the_frozen_network():
    adapted = add_lora(*PLAIN, 2, wrt=ATTENTION, key=KEY)
    np.testing.assert_array_equal(output(*adapted, TOKENS), output(*PLAIN, TOKENS))
    before, after = flat(PLAIN[1]), flat(adapted[1])
    for path, leaf in before.items():
        np.testing.assert_array_equal(after[path], leaf)
    names = {path.removesuffix("/kernel") for path in before if "kernel" in path}
    names = {name for name in names if name.endswith(("query", "value"))}
    added = {path: leaf.shape for path, leaf in after.items() if path not in before}
    expected = {f"{name}/lora/lora_a": (8, 2) for name in names}
    assert added == expected | {f"{name}/lora/lora_b": (2, 8) for name in names}
    assert len(names) == 4
    draws = [after[path] for path in added if path.endswith("a")]
    assert np.std(draws) == pytest.approx(np.sqrt(2 / 8), rel=0.3)
    assert len({draw.tobytes() for draw in map(np.asarray, draws)}) == 4
    other = flat(add_lora(*PLAIN, 2, wrt=ATTENTION, key=jax.random.key(4))[1])
    path = "encoder/layers/0/query/lora/lora_a"
    assert not np.allclose(after[path], other[path])


def test_merged_is_the_network_with_updates():
    adapted = add_lora(*PLAIN, 3, wrt="encoder/*/kernel", key=KEY)
    trained = moved(adapted[1])
    merged = merge_lora(adapted[0], trained)
    np.testing.assert_allclose(
        output(*merged, TOKENS), output(adapted[0], trained, TOKENS), atol=1e-5
    )
    # The static part is equal, so that what was compiled for it serves again.
    assert merged[0] == PLAIN[0]
    assert hash(merged[0]) == hash(PLAIN[0])
    assert jax.tree.structure(merged[1]) == jax.tree.structure(PLAIN[1])
    after, before = flat(merged[1]), flat(trained)
    name = "encoder/layers/1/down"
    update = before[f"{name}/lora/lora_a"] @ before[f"{name}/lora/lora_b"]
    expected = before[f"{name}/kernel"] + update
    np.testing.assert_allclose(after[f"{name}/kernel"], expected, atol=1e-5)
    np.testing.assert_array_equal(after["head/kernel"], before["head/kernel"])


@dataclasses.dataclass(frozen=True)
class Squares:
    graphdef: nnx.GraphDef

    def __call__(self, params, inputs, y):
        return ((output(self.graphdef, params, inputs) - y) ** 2).mean()


def test_full_rank_reaches_least_squares():
    """As training the kernel itself does: W + A B can be any matrix."""
    x = RNG.normal(size=(60, 5)).astype(np.float32)
    y = (x @ RNG.normal(size=(5, 3)) + RNG.normal(size=(60, 3))).astype(np.float32)
    linear = nnx.Linear(5, 3, use_bias=False, rngs=nnx.Rngs(0))
    plain = nnx.split(linear, nnx.Param)
    exact = np.linalg.lstsq(x, y, rcond=None)[0]
    options = {"key": KEY, "steps": 1500, "batch_size": 60, "learning_rate": 0.05}
    options |= {"weight_decay": 0.0, "compute_dtype": "float32"}

    def distance(rank):
        adapted = add_lora(*plain, rank, wrt="kernel", key=KEY)
        loss = Squares(adapted[0])
        tuned = minimise(loss, adapted[1], x, y, wrt="*lora_?", **options)
        np.testing.assert_array_equal(tuned.params["kernel"], plain[1]["kernel"])
        kernel = merge_lora(adapted[0], tuned.params)[1]["kernel"]
        return np.abs(kernel - exact).max()

    whole = minimise(Squares(plain[0]), plain[1], x, y, **options)
    assert np.abs(whole.params["kernel"] - exact).max() < 1e-3
    assert distance(3) < 1e-3
    assert distance(1) > 0.1


def cross_entropy(graphdef):
    def loss(params, example):
        inputs, y = example
        logits = output(graphdef, params, jax.tree.map(lambda a: a[None], inputs))
        return -jax.nn.log_softmax(logits[0])[y]

    return loss


@pytest.mark.left_out
def test_gradients_by_finite_differences():
    graphdef, params = add_lora(*PLAIN, 2, wrt=ATTENTION, key=KEY)
    loss, examples, step = cross_entropy(graphdef), (TOKENS, LABELS), 1e-5
    with jax.enable_x64(True):
        params = jax.tree.map(lambda a: jnp.asarray(a, np.float64), moved(params))
        for name in ("lora_a", "lora_b"):
            path = f"encoder/layers/0/query/lora/{name}"
            oracle = gradients.ghost(loss, params, examples, wrt=path)
            direction = RNG.normal(size=flat(params)[path].shape)

            def shift(key, leaf, step, path=path, direction=direction):
                names = jax.tree_util.keystr(key[:-1], simple=True, separator="/")
                return leaf + step * direction if names == path else leaf

            up, down = (
                jax.tree_util.tree_map_with_path(
                    lambda key, leaf, step=step: shift(key, leaf, step), params
                )
                for step in (step, -step)
            )
            for i in range(3):
                example = jax.tree.map(lambda a, i=i: a[i], examples)
                slope = (loss(up, example) - loss(down, example)) / (2 * step)
                (gradient,) = jax.tree.leaves(oracle.take(jnp.asarray([i])).mean())
                expected = np.vdot(np.ravel(gradient), np.ravel(direction))
                assert abs(slope) > 1e-4
                assert slope == pytest.approx(expected, rel=1e-5)


def test_rows_are_chosen_by_gradients_of_the_updates():
    """At the start, those by A are 0 and those by B projections of the kernel's."""
    graphdef, params = add_lora(*PLAIN, 2, wrt="head/kernel", key=KEY)
    loss = cross_entropy(graphdef)

    def of_updates(part):
        return gradients.ghost(loss, params, part, wrt="*lora_?")

    adapted = Target(config=CONFIG, graphdef=graphdef, params=params, read="mean")
    hidden, logits = adapted.head_input_and_logits(TOKENS)
    a = flat(params)["head/lora/lora_a"]
    errors = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    errors[np.arange(6), LABELS] -= 1
    expected = np.einsum("nr,nc->nrc", hidden @ a, errors).reshape(6, -1)
    oracle = of_updates((TOKENS, LABELS))
    np.testing.assert_allclose(
        oracle.gram(oracle), expected @ expected.T, rtol=1e-4, atol=1e-6
    )
    pool, few = (
        jax.tree.map(lambda leaf, rows=rows: leaf[rows], (TOKENS, LABELS))
        for rows in (np.arange(4), np.arange(4, 6))
    )
    chosen = select_for_finetuning(pool, few, 2, network=of_updates)
    by_hand = select_for_finetuning(expected[:4], expected[4:], 2)
    np.testing.assert_array_equal(chosen.indices, by_hand.indices)


def test_fine_tuning_trains_the_updates_alone():
    adapted = add_lora(*PLAIN, 4, wrt="encoder/*/kernel", key=KEY)
    tuned = finetune(
        *adapted,
        TOKENS,
        LABELS,
        wrt=["*lora_?", "head/*"],
        key=KEY,
        steps=60,
        batch_size=6,
        learning_rate=0.02,
        compute_dtype="float32",
    )
    before, after = flat(adapted[1]), flat(tuned.params)
    changed = {path for path in before if np.any(before[path] != after[path])}
    assert changed == {p for p in before if "lora_" in p or p.startswith("head/")}
    assert tuned.losses[-1] < tuned.losses[0] / 3
    target = Target(config=CONFIG, graphdef=PLAIN[0], params=PLAIN[1], read="mean")
    merged = merge_lora(adapted[0], tuned.params)[1]
    logits = dataclasses.replace(target, params=merged).logits(TOKENS)
    assert (logits.argmax(1) == LABELS).all()


class Mixed(nnx.Module):
    """Layers in all containers, one of them in two places, one in bfloat16."""

    def __init__(self, *, rngs):
        self.wide = nnx.Linear(3, 3, use_bias=False, dtype=jnp.bfloat16, rngs=rngs)
        self.again = self.wide
        self.parts = nnx.Sequential(nnx.Linear(3, 2, rngs=rngs), jnp.tanh)
        self.named = nnx.Dict(last=nnx.Linear(2, 2, rngs=rngs))

    def __call__(self, x):
        return self.named["last"](self.parts(self.again(self.wide(x))))


def test_layers_in_containers_and_in_two_places():
    plain = nnx.split(Mixed(rngs=nnx.Rngs(0)), nnx.Param)
    adapted = add_lora(*plain, 1, wrt="*kernel", key=KEY)
    model = nnx.merge(*adapted)
    assert model.wide is model.again
    layers = (model.wide, model.parts.layers[0], model.named["last"])
    assert all(isinstance(layer, nnx.LoRALinear) for layer in layers)
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_array_equal(output(*adapted, x), output(*plain, x))
    trained = moved(adapted[1], scale=0.1)
    merged = merge_lora(adapted[0], trained)
    assert merged[0] == plain[0]
    # In bfloat16 a sum of two products is not the product with a sum.
    np.testing.assert_allclose(
        output(*merged, x), output(adapted[0], trained, x), atol=0.02
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rank": 0}, ValueError, "rank must be at least 1, got 0"),
        ({"rank": 2.5}, TypeError, "rank must be a whole number, got 2.5"),
        (
            {"rank": 4, "wrt": "*/kernel"},
            ValueError,
            r"rank must be at most 3, the lesser side of 'head/kernel' of shape "
            r"\(8, 3\), got 4",
        ),
        ({"wrt": "*/q/kernel"}, ValueError, r"wrt='\*/q/kernel' matches no parameter;"),
        ({"wrt": lambda path, leaf: False}, ValueError, "selects nothing; there are"),
        ({"wrt": 3}, TypeError, "wrt must be None, one or several globs"),
        (
            {"wrt": "*/words/*"},
            ValueError,
            "wrt must select kernels of nnx.Linear without LoRA, got "
            "'encoder/words/embedding'; there are 'encoder/layers/0/down/kernel', ",
        ),
    ],
)
def test_refuses(change, error, message):
    with pytest.raises(error, match=message):
        add_lora(*PLAIN, **{"rank": 2, "wrt": ATTENTION, "key": KEY} | change)


def test_refuses_a_second_update_and_to_merge_none():
    adapted = add_lora(*PLAIN, 2, wrt=ATTENTION, key=KEY)
    with pytest.raises(ValueError, match="without LoRA, got 'encoder/layers/0/query/"):
        add_lora(*adapted, 2, wrt="*/query/kernel", key=KEY)
    with pytest.raises(ValueError, match=r"must have an nnx\.LoRALinear, as add_lora"):
        merge_lora(*PLAIN)
