"""Tiny networks, one of each kind of layer, for in-run values."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.attribute import in_run_shapley, in_run_step

B, M, IN, HIDDEN, CLASSES, WORDS, LENGTH = 6, 4, 5, 4, 3, 7, 5


class Case(NamedTuple):
    """A loss, parameters, a batch of B and M targets."""

    loss: object
    params: dict
    examples: tuple
    targets: tuple


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def labels(n, seed=0):
    drawn = np.random.default_rng([seed, n]).integers(0, CLASSES, n)
    return drawn.astype(np.int32)


def cross_entropy(logits, label):
    return -jax.nn.log_softmax(logits)[label]


def case(loss, params, *shape):
    return Case(
        loss,
        params,
        (normal(B, *shape, seed=1), labels(B)),
        (normal(M, *shape, seed=2), labels(M)),
    )


def dense_loss(params, example):
    x, y = example
    hidden = jnp.tanh(x @ params["a"]["kernel"] + params["a"]["bias"])
    return cross_entropy(hidden @ params["b"]["kernel"] + params["b"]["bias"], y)


def dense():
    params = {
        "a": {"kernel": normal(IN, HIDDEN), "bias": normal(HIDDEN)},
        "b": {"kernel": normal(HIDDEN, CLASSES), "bias": normal(CLASSES)},
    }
    return case(dense_loss, params, IN)


def conv_loss(params, example):
    x, y = example
    out = jax.lax.conv_general_dilated(
        x[None],
        params["conv"]["kernel"],
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    hidden = jnp.tanh(out[0] + params["conv"]["bias"]).sum(axis=(0, 1))
    return cross_entropy(hidden @ params["last"]["kernel"], y)


def conv():
    params = {
        "conv": {"kernel": normal(3, 3, 2, HIDDEN), "bias": normal(HIDDEN)},
        "last": {"kernel": normal(HIDDEN, CLASSES)},
    }
    return case(conv_loss, params, 6, 5, 2)


def attention_loss(params, example):
    x, y = example
    query, key, value = (x @ params[name]["kernel"] for name in ("q", "k", "v"))
    mixed = jax.nn.softmax(query @ key.T / HIDDEN**0.5) @ value
    return cross_entropy(mixed.mean(axis=0) @ params["last"]["kernel"], y)


def attention():
    params = {name: {"kernel": normal(IN, HIDDEN, seed=ord(name))} for name in "qkv"}
    params["last"] = {"kernel": normal(HIDDEN, CLASSES)}
    return case(attention_loss, params, LENGTH, IN)


def normed_loss(params, example):
    """A layer norm between two dense layers."""
    x, y = example
    hidden = x @ params["a"]["kernel"]
    centred = hidden - hidden.mean()
    hidden = centred / jnp.sqrt((centred**2).mean() + 1e-5)
    hidden = jnp.tanh(hidden * params["norm"]["scale"] + params["norm"]["bias"])
    return cross_entropy(hidden @ params["b"]["kernel"], y)


def normed():
    params = {
        "a": {"kernel": normal(IN, HIDDEN)},
        "norm": {"scale": normal(HIDDEN), "bias": normal(HIDDEN, seed=1)},
        "b": {"kernel": normal(HIDDEN, CLASSES)},
    }
    return case(normed_loss, params, IN)


def tokens(loss, params):
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, WORDS, (n, LENGTH)).astype(np.int32) for n in (B, M)]
    return Case(loss, params, (texts[0], labels(B)), (texts[1], labels(M)))


def embedding_loss(params, example):
    words, y = example
    hidden = jnp.tanh(params["embedding"][words].mean(axis=0))
    return cross_entropy(hidden @ params["last"]["kernel"], y)


def embedding():
    params = {
        "embedding": normal(WORDS, HIDDEN),
        "last": {"kernel": normal(HIDDEN, CLASSES)},
    }
    return tokens(embedding_loss, params)


def tied_loss(params, example):
    """The next word by the table that embeds the words."""
    words, _ = example
    hidden = jnp.tanh(params["embedding"][words[:-1]] @ params["mix"]["kernel"])
    logits = hidden.mean(axis=0) @ params["embedding"].T
    return -jax.nn.log_softmax(logits)[words[-1]]


def tied():
    params = {
        "embedding": normal(WORDS, HIDDEN),
        "mix": {"kernel": normal(HIDDEN, HIDDEN)},
    }
    return tokens(tied_loss, params)


def tied_dense_loss(params, example):
    """An autoencoder: one kernel, and its transpose, which `ghost` follows."""
    x, _ = example
    return jnp.sum((jnp.tanh(x @ params["kernel"]) @ params["kernel"].T - x) ** 2)


def tied_dense():
    return case(tied_dense_loss, {"kernel": normal(IN, HIDDEN)}, IN)


CASES = {
    "dense": dense,
    "conv": conv,
    "attention": attention,
    "embedding": embedding,
    "layer norm": normed,
    "tied": tied,
    "tied dense": tied_dense,
}
GHOST = {"dense", "conv", "attention", "tied dense"}
"""Those whose parameters `gradients.ghost` follows."""


def widen(tree):
    """Make all floats float64; within `jax.enable_x64`."""
    floating = lambda array: jnp.issubdtype(array.dtype, jnp.floating)
    return jax.tree.map(
        lambda array: jnp.asarray(array, jnp.float64 if floating(array) else None), tree
    )


def flat_gradients(loss, params, examples):
    """Return each example's gradient, flat, `[n, p]`, by `jax.grad`."""
    grads = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(params, examples)
    return np.concatenate(
        [np.asarray(g).reshape(len(g), -1) for g in jax.tree.leaves(grads)], axis=1
    )


def flat_hessians(loss, params, examples):
    """Return each example's Hessian, `[n, p, p]`."""
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    of = lambda flat, example: loss(unravel(flat), example)
    return np.asarray(jax.jit(jax.vmap(jax.hessian(of), (None, 0)))(flat, examples))


def step_values(loss, params, examples, targets, *, step, order=1):
    """Call the kernel as one program: outside of `jit` each operation is compiled."""
    kernel = jax.jit(functools.partial(in_run_step, loss, order=order))
    return kernel(params, examples, targets, step=step)


@functools.cache
def game(name, wide):
    """Return the exact values of a step of 0.3, both orders, and the unit of error."""
    loss, params, examples, targets = CASES[name]()
    with jax.enable_x64(True):
        params, examples, targets = widen((params, examples, targets))
        of_batch = flat_gradients(loss, params, examples)
        aims = flat_gradients(loss, params, targets)
        hessians = flat_hessians(loss, params, targets)
    step = 0.3 / B
    first = step * aims @ of_batch.T
    pairs = np.einsum("ip,mpq,q->mi", of_batch, hessians, of_batch.sum(0))
    return first, first - step**2 / 2 * pairs


def run(rule, *, name="dense", n=24, **options):
    loss, params, _, targets = CASES[name]()
    examples = (normal(n, IN, seed=5), labels(n, seed=5))
    options = {"steps": 12, "batch_size": 8, "key": jax.random.key(0), **options}
    trained = in_run_shapley(loss, params, examples, targets, optimizer=rule, **options)
    return trained, loss, params, examples, targets
