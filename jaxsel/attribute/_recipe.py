"""A model and how it is trained, as functions of the weights of its samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key, Shaped

from jaxsel._devices.typed import grad, tree_map
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.flax_models import (
    apply_model,
    check_model,
    init_model,
    other_variables,
)
from jaxsel._inputs.show import brief

from ._inputs import Samples, check_samples
from ._permutations import permutations

if TYPE_CHECKING:
    import optax

Losses = Callable[[jax.Array, jax.Array], jax.Array]
"""From outputs `[b, K]` and labels or targets `[b]` to losses `[b]`."""

Output = Literal["loss", "margin", "log_odds"] | Losses
"""What is measured of a target; see `Recipe.measure`."""


@brief
class TrainingPlan(NamedTuple):
    """The start of a run, and the batches of its steps.

    Attributes:
        params: Initial parameters.
        rows: The samples of each step, `[steps, b]`.
        shares: Factor of each of their losses: one over the number of samples of the
            step, or 0 where it has fewer than b.
    """

    params: Any
    rows: jax.Array
    shares: jax.Array


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model, its loss, and its training on weighted samples by optax.

    An epoch is one pass over the samples in a new order, in batches of `batch_size`, of
    which the last has the remaining samples. A step follows the gradient of

        sum of weight · loss over the batch / number of samples in the batch,

    so that a sample of weight 0 is in the order, and has no effect.

    Args:
        model: A function of `flax.nnx.Rngs` that returns an NNX module; a Linen module;
            or a pair of functions, `init(key, x) -> params` and
            `apply(params, x) -> outputs`, with any pytree of arrays as params. It maps
            examples `[b, ...]` to logits `[b, classes]`, or to predictions `[b, K]`.
            Flax models have parameters alone: BatchNorm, which keeps statistics, and
            Dropout in training mode, which draws, are refused. Products are computed
            with all digits of their type on accelerators, too, unless a layer asks for
            a precision of its own.
        optimizer: An optax transformation, with its schedule and decay.
        epochs: Passes over the samples.
        batch_size: Samples in a step.
        loss: From outputs `[b, K]` and labels or targets `[b]` to losses `[b]`. None
            takes the cross-entropy (nats) of integer labels, and for other targets the
            squared error of the first output.

    Raises:
        TypeError: If the model is of another kind, or a field cannot be hashed.
        ValueError: If a count is below 1.

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> import optax
        >>> from jaxsel import attribute, models
        >>> recipe = attribute.Recipe(
        ...     lambda rngs: models.MLP(2, 2, rngs=rngs),
        ...     optax.sgd(0.5, momentum=0.9),
        ...     epochs=5,
        ...     batch_size=4,
        ... )
        >>> x = np.array([[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.1]])
        >>> params = recipe.train(jax.random.key(0), x, np.array([0, 0, 1, 1]))
        >>> recipe.apply(params, x).argmax(1).tolist()
        [0, 0, 1, 1]
    """

    model: Any
    optimizer: optax.GradientTransformation
    _: dataclasses.KW_ONLY
    epochs: int
    batch_size: int
    loss: Losses | None = None

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        if not all(hasattr(self.optimizer, name) for name in ("init", "update")):
            raise TypeError(
                f"optimizer must be an optax transformation, got {self.optimizer!r}"
            )
        if isinstance(self.model, tuple):
            if len(self.model) != 2 or not all(map(callable, self.model)):
                raise TypeError(
                    "model must be a pair of functions, init and apply, if it is a "
                    f"tuple, got {self.model!r}"
                )
        else:
            check_model(self.model)
        if self.loss is not None and not callable(self.loss):
            raise TypeError(
                "loss must be a function of outputs and targets, or None, got "
                f"{self.loss!r}"
            )
        for name in ("model", "optimizer", "loss"):
            try:
                hash(getattr(self, name))
            except TypeError as error:
                raise TypeError(
                    f"{name} must be hashable, so that it is compiled once, got "
                    f"{getattr(self, name)!r}"
                ) from error

    def init(self, key: Key[jax.Array, ""], x: Shaped[jax.Array, "n ..."]) -> Any:
        """Return initial parameters; in float64 if x is."""
        x = jnp.asarray(x)
        first = x[:1]
        if isinstance(self.model, tuple):
            params = self.model[0](key, first)
        else:
            params = init_model(self.model, key, first)
        return widened(params) if x.dtype == jnp.float64 else params

    def apply(self, params: Any, x: Shaped[jax.Array, "b ..."]) -> jax.Array:
        """Return the outputs of the model, `[b, K]`."""
        x = jnp.asarray(x)
        # Accelerators multiply in fewer digits by default, too few for derivatives
        # through hundreds of steps.
        with jax.default_matmul_precision("highest"):
            if isinstance(self.model, tuple):
                return self.model[1](params, x)
            return apply_model(self.model, params, x)

    def losses(
        self, outputs: Float[jax.Array, "b K"], y: Shaped[jax.Array, " b"]
    ) -> Float[jax.Array, " b"]:
        """Return the loss of each example, `[b]`."""
        if self.loss is not None:
            return self.loss(outputs, y)
        if jnp.issubdtype(y.dtype, jnp.integer):
            logs = jax.nn.log_softmax(outputs)
            return -jnp.take_along_axis(logs, y[:, None], axis=1)[:, 0]
        return (outputs[:, 0] - y) ** 2

    def measure(
        self,
        output: Output,
        outputs: Float[jax.Array, "t K"],
        y: Shaped[jax.Array, " t"],
    ) -> Float[jax.Array, " t"]:
        """Return one number a target, `[t]`, higher for better.

        Args:
            output: "loss", minus the loss; "margin", the logit of the label minus the
                largest other one; "log_odds" of the label's probability, the logit
                minus the log of the sum of the others' exponentials; or a function of
                outputs `[t, K]` and labels or targets `[t]`.
            outputs: Outputs of the model.
            y: Labels or targets.
        """
        if not isinstance(output, str):
            return output(outputs, y)
        if output == "loss":
            return -self.losses(outputs, y)
        label = jnp.arange(outputs.shape[1])[None] == y[:, None]
        right = jnp.sum(jnp.where(label, outputs, 0), axis=1)
        others = jnp.where(label, -jnp.inf, outputs)
        if output == "margin":
            return right - others.max(1)
        return right - jax.nn.logsumexp(others, axis=1)

    def check_output(self, output: Any, y: jax.Array) -> None:
        """Raise a ValueError unless `measure` has an output for such labels."""
        if callable(output):
            return
        check_choice("output", output, ("loss", "margin", "log_odds"))
        if output != "loss" and not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"output must be 'loss' for targets, got {output!r}")

    def steps(self, n: int) -> int:
        """Return the number of steps in a training on n samples."""
        return self.epochs * -(-n // self.batch_size)

    def plan(
        self,
        key: Key[jax.Array, ""],
        x: Shaped[jax.Array, "n ..."],
        members: Int[jax.Array, " k"] | None = None,
    ) -> TrainingPlan:
        """Draw the start of a run, and the batches of its steps.

        Map it over many keys by `jax.lax.map`: programs of `vmap`ped draws take four
        times as long to compile.

        Args:
            key: Key of the run: its halves are of the start and of the order, in which
                epoch e has `fold_in(half, e)`.
            x: Samples, `[n, ...]`.
            members: Rows to train on, `[k]`; all if None.
        """
        x = jnp.asarray(x)
        start_key, order_key = jax.random.split(key)
        members = jnp.arange(x.shape[0]) if members is None else members
        k = members.shape[0]
        size = min(self.batch_size, k)

        by_epoch = jax.vmap(jax.random.fold_in, (None, 0))
        keys = by_epoch(order_key, jnp.arange(self.epochs))
        rows = permutations(keys, members)
        real = jnp.ones(rows.shape, bool)
        # The last batch of an epoch is filled up with rows of weight 0.
        rows, real = (jnp.pad(a, ((0, 0), (0, -k % size))) for a in (rows, real))
        rows, real = rows.reshape(-1, size), real.reshape(-1, size)
        params = self.init(start_key, x)
        # Of real samples alone: the last batch of an epoch takes a whole step, too.
        shares = real / jnp.sum(real, axis=1, keepdims=True).astype(_type_of(params))
        return TrainingPlan(params, rows, shares)

    def follow(
        self,
        plan: TrainingPlan,
        x: Shaped[jax.Array, "n ..."],
        y: Shaped[jax.Array, " n"],
        weights: Float[jax.Array, " n"] | None = None,
    ) -> Any:
        """Return the parameters after a planned run: for use in `jit` and `vmap`.

        `vmap` over `weights` trains on many subsets from one start in one order, and
        over `plan` in many runs.

        Args:
            plan: Start and batches.
            x: Samples, `[n, ...]`.
            y: Labels or targets, `[n]`.
            weights: Weight of each sample; 1 if None.
        """
        x, y = jnp.asarray(x), jnp.asarray(y)
        state = plan.params, self.optimizer.init(plan.params)
        shares = plan.shares
        if weights is not None:
            shares = shares * weights[plan.rows].astype(shares.dtype)

        def step(carry: Any, batch: Any) -> tuple[Any, None]:
            (params, state), (rows, shares) = carry, batch
            return self.step(params, state, x, y, rows, shares), None

        return jax.lax.scan(step, state, (plan.rows, shares))[0][0]

    def train(
        self,
        key: Key[jax.Array, ""],
        x: Shaped[jax.Array, "n ..."],
        y: Shaped[jax.Array, " n"],
        weights: Float[jax.Array, " n"] | None = None,
    ) -> Any:
        """Return the parameters after a run: `follow` of a `plan`, unchecked."""
        return self.follow(self.plan(key, x), x, y, weights)

    def step(
        self,
        params: Any,
        state: Any,
        x: jax.Array,
        y: jax.Array,
        rows: Int[jax.Array, " b"],
        shares: Float[jax.Array, " b"],
    ) -> tuple[Any, Any]:
        """Return parameters and optimiser state after one step.

        Args:
            params: Parameters before it.
            state: State of the optimiser before it.
            x: Samples, `[n, ...]`.
            y: Labels or targets, `[n]`.
            rows: The batch.
            shares: Factor of each of its losses.
        """
        import optax

        def loss(params: Any) -> jax.Array:
            return jnp.sum(shares * self.losses(self.apply(params, x[rows]), y[rows]))

        updates, state = self.optimizer.update(grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    def check(self, x: Any, y: Any, x_val: Any, y_val: Any) -> Samples:
        """Check samples and targets, and return them as arrays.

        Args:
            x: Training samples, `[n, ...]`: integers stay integers, all else becomes
                float32, or stays float64 in x64 mode.
            y: Labels from 0 on, or targets, `[n]`.
            x_val: Validation samples, `[m, ...]`.
            y_val: Their labels or targets, `[m]`.

        Raises:
            TypeError: If something is not numeric, or is being traced.
            ValueError: If shapes or labels do not fit, numbers are not finite, or the
                model keeps statistics or draws.
        """
        samples = check_samples(x, y, x_val, y_val)
        self._check_variables(samples.x)
        self._check_outputs(samples)
        return samples

    def other_variables(self, x: jax.Array) -> list[str]:
        """Name statistics and random draws of a Flax model, beyond its parameters."""
        return [] if isinstance(self.model, tuple) else other_variables(self.model, x)

    def _check_variables(self, x: jax.Array) -> None:
        others = self.other_variables(x[:1])
        if others:
            more = f" and {len(others) - 1} more" if others[1:] else ""
            raise ValueError(
                "model must have no variables besides its parameters, got "
                f"{others[0]}{more}: statistics over a batch, and random draws, give a "
                "sample no derivative of its own. Take LayerNorm or GroupNorm instead "
                "of BatchNorm, and leave Dropout out, or make it with "
                "deterministic=True"
            )

    def _check_outputs(self, samples: Samples) -> None:
        x, y = samples.x, samples.y

        def run() -> jax.Array:
            return self.apply(self.init(jax.random.key(0), x), x[:2])

        outputs = jax.eval_shape(run)
        rows = min(2, len(x))
        if len(outputs.shape) != 2 or outputs.shape[0] != rows:
            raise ValueError(
                f"model must map {rows} examples to outputs [{rows}, K], got "
                f"{list(outputs.shape)}"
            )
        losses = jax.eval_shape(self.losses, outputs, y[:2])
        if losses.shape != (rows,):
            raise ValueError(
                f"loss must return one number an example, [{rows}], got "
                f"{list(losses.shape)}"
            )
        if self.loss is None and jnp.issubdtype(y.dtype, jnp.integer):
            for name, labels in (("y", y), ("y_val", samples.y_val)):
                least, most = int(labels.min()), int(labels.max())
                if least < 0 or most >= outputs.shape[1]:
                    raise ValueError(
                        f"{name} must lie in [0, {outputs.shape[1]}), the classes of "
                        f"the model, got values from {least} to {most}"
                    )


def widened(tree: Any) -> Any:
    """Return a tree with its floating-point leaves in float64."""

    def wide(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf)
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(jnp.float64) if is_float else leaf

    return tree_map(wide, tree)


def _type_of(params: Any) -> Any:
    leaves = [leaf.dtype for leaf in jax.tree.leaves(params)]
    floats = [dtype for dtype in leaves if jnp.issubdtype(dtype, jnp.floating)]
    return jnp.result_type(*floats) if floats else jnp.float32


def name_of_output(output: Output) -> str:
    """Return the name of an output for a result's `method`."""
    return output if isinstance(output, str) else getattr(output, "__name__", "")


def check_recipe(recipe: Any) -> None:
    """Raise a TypeError unless it is a recipe."""
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be an attribute.Recipe, got {recipe!r}")
