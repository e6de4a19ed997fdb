"""Any Flax model with an optax recipe, on many subsets at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key, Shaped

from jaxsel._devices.typed import fori_loop, grad
from jaxsel._inputs.checks import check_count
from jaxsel._inputs.flax_models import (
    apply_model,
    check_model,
    init_model,
    other_variables,
)
from jaxsel._runs.draws import drawer
from jaxsel.value._examples import Examples

if TYPE_CHECKING:
    import optax


class Trained(NamedTuple):
    """B models.

    Attributes:
        params: Of each, every array with a leading axis B.
        present: Which classes a subset has, `[B, C]`.
    """

    params: Any
    present: jax.Array


@dataclasses.dataclass(frozen=True)
class FlaxLearner:
    """A Flax model, trained by optax on minibatches of each subset.

    All subsets start from the same initial parameters and draw by the same random
    numbers, so that what a subset is worth depends on it and the key alone. Features
    come as they are: standardise columns in raw units, which few recipes suit. Training
    is `vmap`ped over subsets: on an accelerator that is what makes it fast (measured:
    15 times as fast as one model after the other); on a CPU it gains nothing (438
    against 426 fits a second), and learners in closed form are up to hundreds of times
    faster.

    Args:
        model: Either a function of `flax.nnx.Rngs` that returns an NNX module, or a
            Linen module: it maps examples `[b, ...]` to logits `[b, classes]`, or to
            predictions `[b, 1]` of targets. It has parameters alone: BatchNorm, which
            keeps statistics besides, and Dropout in training mode, which draws, are
            refused.
        optimizer: The recipe, with its schedule.
        steps: Number of steps.
        batch_size: Examples in a step, drawn with replacement in proportion to their
            weight.
        loss: Of outputs `[b, K]` and labels or targets `[b]`, to `[b]`; cross-entropy
            for classes and the squared error for targets if None.
    """

    model: Any
    optimizer: optax.GradientTransformation
    _: dataclasses.KW_ONLY
    steps: int = 200
    batch_size: int = 32
    loss: Callable[[jax.Array, jax.Array], jax.Array] | None = None

    probabilistic = True
    regression = True
    warm = False
    host = False

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_model(self.model)

    def prepare(self, data: Examples) -> Examples:
        """Raise if the model's variables or outputs do not fit.

        Raises:
            ValueError: If it has another number of outputs than there are classes, or
                variables besides its parameters.
        """
        first = jnp.asarray(data.x[:1], jnp.float32)
        others = other_variables(self.model, first)
        if others:
            more = len(others) - 1
            raise ValueError(
                "model must have no variables besides its parameters, got "
                f"{others[0]}{f' and {more} more' if more else ''}: a FlaxLearner "
                "keeps no statistics and has no training mode. Take LayerNorm or "
                "GroupNorm instead of BatchNorm, and "
                "leave Dropout out, or make it with deterministic=True and without rngs"
            )
        outputs = jax.eval_shape(
            lambda: self.apply(self.init(jax.random.key(0), first), first)
        ).shape
        wanted = (1, data.n_classes or 1)
        if outputs != wanted:
            raise ValueError(
                f"model must map an example {first.shape} to {wanted}, got {outputs}"
            )
        return data

    def fit(
        self,
        data: Examples,
        weights: Shaped[jax.Array, "B n"],
        key: Key[jax.Array, ""] | None,
        start: Any = None,
    ) -> Trained:
        """Train on each subset: see `Learner.fit`.

        Raises:
            ValueError: If there is no key.
        """
        import optax

        del start
        if key is None:
            raise ValueError(
                "key must be given: a FlaxLearner draws initial parameters and "
                "batches; got None"
            )
        weights = jnp.asarray(weights, jnp.float32)
        x, y = jnp.asarray(data.x, jnp.float32), jnp.asarray(data.y)
        init_key, draw_key = jax.random.split(key)
        params = self.init(init_key, x[:1])

        def train(weights: jax.Array) -> Any:
            draw = drawer(weights)

            def step(i: jax.Array, carry: Any) -> Any:
                params, state = carry
                rows = draw(jax.random.fold_in(draw_key, i), self.batch_size)

                def loss(params: Any) -> jax.Array:
                    outputs = self.apply(params, x[rows])
                    return jnp.mean(self.losses(outputs, y[rows], data.n_classes))

                grads = grad(loss)(params)
                updates, state = self.optimizer.update(grads, state, params)
                return optax.apply_updates(params, updates), state

            carry = params, self.optimizer.init(params)
            return fori_loop(0, self.steps, step, carry)[0]

        present = jnp.ones((len(weights), 1), bool)
        if data.n_classes:
            onehot = jax.nn.one_hot(y, data.n_classes, dtype=jnp.float32)
            present = jnp.matmul(weights, onehot) > 0
        return Trained(jax.vmap(train)(weights), present)

    def predict(
        self, params: Trained, x: Shaped[jax.Array, "m ..."]
    ) -> Float[jax.Array, "B m C"]:
        """Return outputs, `[B, m, K]`: see `Learner.predict`."""
        x = jnp.asarray(x, jnp.float32)
        apply = functools.partial(self.apply, x=x)
        outputs = jax.vmap(apply)(params.params)
        sound = jnp.isfinite(outputs).all((1, 2))
        for leaf in jax.tree.leaves(params.params):
            sound &= jnp.isfinite(leaf).reshape(len(leaf), -1).all(1)
        outputs = jnp.where(sound[:, None, None], outputs, jnp.nan)
        return jnp.where(params.present[:, None], outputs, -jnp.inf)

    def init(self, key: jax.Array, x: jax.Array) -> Any:
        """Return initial parameters."""
        return init_model(self.model, key, x)

    def apply(self, params: Any, x: jax.Array) -> jax.Array:
        """Return the outputs of one model, `[b, K]`."""
        return apply_model(self.model, params, x)

    def losses(self, outputs: jax.Array, y: jax.Array, n_classes: int) -> jax.Array:
        """Return the loss of each example, `[b]`."""
        if self.loss is not None:
            return self.loss(outputs, y)
        if n_classes:
            import optax

            return optax.softmax_cross_entropy_with_integer_labels(outputs, y)
        return (outputs[:, 0] - y) ** 2
