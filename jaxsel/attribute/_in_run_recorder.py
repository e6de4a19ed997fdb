"""A recorder of in-run values for any training loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import tree_map
from jaxsel._inputs.checks import (
    check_choice,
    check_concrete,
    check_count,
    wide_type,
)
from jaxsel._inputs.chunk import first_row
from jaxsel._inputs.parameters import Loss, check_examples, check_loss, split
from jaxsel._results.types import Provenance, Reduce, Values
from jaxsel._runs.fingerprint import fingerprint

from ._in_run_inputs import Known, input_products
from ._in_run_kernel import (
    Order,
    by_directions,
    by_factors,
    check_alike,
    check_order,
    factors_of,
    follows,
    mean_gradient,
)
from ._in_run_rules import (
    Adam,
    Rule,
    Sgd,
    describe,
    preconditioner,
    weights_of,
)


class InRunState(NamedTuple):
    """Sums of a recorder after some steps.

    Attributes:
        values: Sums of the values so far, `[n, targets]`.
        steps: Steps recorded, int32.
        first_bad: The first step with NaN or infinity, int32; -1 if there was none.
        known: Products of samples' and targets' inputs that stay as they are.
    """

    values: jax.Array
    steps: jax.Array
    first_bad: jax.Array
    known: Known | None


class InRun:
    """A recorder of in-run Data Shapley values in a training loop of your own.

    Its `step` takes the place of `jax.grad`: it returns the gradient of the batch's
    mean loss, and counts what each sample contributes to the fall of each target's
    loss. It is pure, so that a loop may be jitted, or one `lax.scan`:

        optimizer = recorder.optimizer.optimizer()
        opt_state, state = optimizer.init(params), recorder.init(params)
        for rows in batches:
            gradient, state = recorder.step(state, params, opt_state, batch, rows)
            updates, opt_state = optimizer.update(gradient, opt_state, params)
            params = optax.apply_updates(params, updates)
        values = recorder.finish(state)

    Momentum: a gradient enters its own step and all later ones, at rates that fall by
    the momentum. A sample counts at its own step with the sum of these, up to the last
    of `steps`, times its gradient's inner product with the target's at that step: right
    to first order in the rate, but a target's gradient may turn before the momentum has
    worn off. `in_run_shapley(follow=True)` takes each update's own. Adam: the same,
    with the preconditioner of the step, which counts as a constant, although samples
    have a part in it, and as that of later steps. Weight decay, and clipping that you
    add, count for no sample.

    Args:
        loss: `loss(params, example) -> scalar`, as for `in_run_step`.
        targets: A pytree of arrays `[targets, ...]`: validation examples.
        n: Number of training samples.
        optimizer: `Sgd` or `Adam`, with the numbers of the loop's optimizer.
        steps: Steps that the run will have. None if that is not known: then momentum
            counts beyond the last step, at the rate of the step.
        order: 1, or 2 with the interactions within a batch; see `in_run_step`.
        examples: All samples, a pytree of arrays `[n, ...]`, or None. With them inner
            products of inputs that no parameter changes, those of the first layer, are
            computed once, and not at each step: `n * targets` numbers.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If one is out of range.

    References:
        Wang, Mittal, Song, Jia, "Data Shapley in One Training Run", ICLR 2025,
        arXiv:2406.11011, for SGD; the treatment of momentum and Adam is ours.

    Examples:
        >>> import jax.numpy as jnp
        >>> from jaxsel import attribute
        >>> def loss(w, example):
        ...     return 0.5 * (w - example) ** 2
        >>> recorder = attribute.InRun(
        ...     loss, jnp.array([1.0]), 3, optimizer=attribute.Sgd(0.5)
        ... )
        >>> w = jnp.array(0.0)
        >>> rows = jnp.array([0, 2])
        >>> gradient, state = recorder.step(
        ...     recorder.init(w), w, None, jnp.array([2.0, -2.0]), rows
        ... )
        >>> print(gradient, recorder.finish(state).values)
        0.0 [ 0.5  0.  -0.5]
    """

    def __init__(
        self,
        loss: Loss,
        targets: Any,
        n: int,
        *,
        optimizer: Rule,
        steps: int | None = None,
        order: Order = 1,
        examples: Any = None,
    ):
        check_loss(loss)
        check_order(order)
        if not isinstance(optimizer, Sgd | Adam):
            raise TypeError(
                "optimizer must be an attribute.Sgd or attribute.Adam, whose momentum "
                f"and preconditioner are known, got {type(optimizer).__name__}"
            )
        self.loss, self.targets = loss, check_examples(targets)
        self.n, self.optimizer = check_count("n", n), optimizer
        self.order: Order = order
        self.steps = None if steps is None else check_count("steps", steps)
        self.examples = None if examples is None else check_examples(examples)
        if self.examples is not None:
            check_alike(self.examples, self.targets)
            if (size := jax.tree.leaves(self.examples)[0].shape[0]) != n:
                raise ValueError(f"examples must be the n = {n} samples, got {size}")
        self._weights = weights_of(optimizer, self.steps)

    def __repr__(self) -> str:
        return f"InRun(n={self.n}, {describe(self.optimizer)}, order={self.order})"

    def check(self, params: Any) -> None:
        """Refuse losses that have no gradient for each example; nothing is computed.

        Args:
            params: Parameters of the run.

        Raises:
            ValueError: If an example's loss is no scalar, or layers are in training
                mode.
        """
        follows(self.loss, params, first_row(self.targets))

    def init(self, params: Any) -> InRunState:
        """Return the state before the first step.

        Args:
            params: Parameters that training starts from; values take their type.

        Raises:
            ValueError: If an example's loss is no scalar, or layers are in training
                mode.
        """
        parameters = split(params)
        known = None
        if self._is_ghost(params) and self.examples is not None:
            known = input_products(self.loss, params, self.examples, self.targets)
        targets = jax.tree.leaves(self.targets)[0].shape[0]
        dtype = wide_type(parameters.dtype)
        return InRunState(
            values=jnp.zeros((self.n, targets), dtype),
            steps=jnp.zeros((), jnp.int32),
            first_bad=jnp.full((), -1, jnp.int32),
            known=known,
        )

    def step(
        self,
        state: InRunState,
        params: Any,
        opt_state: Any,
        examples: Any,
        rows: jax.Array,
    ) -> tuple[Any, InRunState]:
        """Return the gradient of the batch's mean loss, and count the step.

        Args:
            state: From `init` or the last step.
            params: Parameters before the step.
            opt_state: State of the optimizer before the step.
            examples: The batch, a pytree of arrays `[batch, ...]`.
            rows: The sample of each, `[batch]` integers in `[0, n)`; a sample may
                occur more than once. Others count for no sample.

        Returns:
            The gradient, in the form of the parameters, and the new state.

        Raises:
            ValueError: If lengths differ, or `opt_state` lacks the buffers of the
                optimizer.
        """
        parameters = split(params)
        examples, rows = check_examples(examples), jnp.asarray(rows)
        size = jax.tree.leaves(examples)[0].shape[0]
        if rows.shape != (size,) or not jnp.issubdtype(rows.dtype, jnp.integer):
            raise ValueError(
                f"rows must be integers of shape [{size}], one for each example of the "
                f"batch, got {rows.dtype}{list(rows.shape)}"
            )
        check_alike(examples, self.targets)
        weight = self._weights.at_step(state.steps, parameters.dtype)
        common = self.loss, params
        if self._is_ghost(params):
            mean, factors = factors_of(*common, examples, self.targets)
            known = tree_map(lambda products: products[rows], state.known)
            values = by_factors(
                *common, self.targets, mean, factors, weight, self.order, known
            )
            gradient = parameters.form.gradient(mean)
        else:
            mean = mean_gradient(*common, examples)
            gradient, step = parameters.form.gradient(mean), weight
            if isinstance(self.optimizer, Adam):
                scale = preconditioner(self.optimizer, opt_state, gradient)
                step = tree_map(lambda leaf: weight * leaf, scale)
            values = by_directions(
                *common, examples, self.targets, mean, step, self.order
            )
        # The smallest leaf: a sum of all values would take a tenth of a small step.
        least = min(mean.values(), key=lambda leaf: leaf.size)
        first_bad = jnp.where(
            ~jnp.isfinite(jnp.sum(least)) & (state.first_bad < 0),
            state.steps,
            state.first_bad,
        )
        total = state.values.at[rows].add(
            values.astype(state.values.dtype),
            mode="drop",
            wrap_negative_indices=False,
        )
        return gradient, InRunState(total, state.steps + 1, first_bad, state.known)

    def finish(
        self, state: InRunState, *, reduce: Reduce = "mean", run_tag: str = ""
    ) -> Values:
        """Return the values of all samples.

        Args:
            state: After the last step.
            reduce: "mean" over targets, with its standard error; None for a row each.
            run_tag: Text that identifies the run, such as its name and seed: values of
                the same run with other targets can then be merged.

        Returns:
            `Values` `[n]`, or `[targets, n]` with `reduce=None`, in the units of the
            loss. Samples that occurred in no batch have 0.

        Raises:
            ValueError: If a step had NaN or infinity, `reduce` is another, or the state
                is that of another recorder.
        """
        check_choice("reduce", reduce, ("mean", None))
        check_concrete("state", state.steps)
        targets = jax.tree.leaves(self.targets)[0].shape[0]
        if state.values.shape != (self.n, targets):
            raise ValueError(
                f"state must hold values of shape [{self.n}, {targets}], [n, targets], "
                f"got {list(state.values.shape)}"
            )
        rows = np.asarray(state.values).T
        _check_finite(rows, int(state.first_bad))
        provenance = None
        if run_tag:
            source = {
                "loss, optimizer and order": fingerprint(
                    self.loss, self.optimizer, self.steps, self.order
                ),
                "run": fingerprint(run_tag),
            }
            digest = fingerprint(*map(np.asarray, jax.tree.leaves(self.targets)))
            provenance = Provenance(source, (f"{targets} targets {digest}",))
        mean = rows.mean(0, dtype=np.float64)
        return Values(
            values=jnp.asarray(rows if reduce is None else mean, rows.dtype),
            m2=None
            if reduce is None
            else jnp.asarray(((rows - mean) ** 2).sum(0), rows.dtype),
            count=jnp.asarray(targets, jnp.int32),
            method=f"in_run_shapley({describe(self.optimizer)}, steps="
            f"{int(state.steps)}, order={self.order})",
            reduce=reduce,
            provenance=provenance,
        )

    def _is_ghost(self, params: Any) -> bool:
        """Return whether layers' factors give the values: one weight, all followed."""
        followed = follows(self.loss, params, first_row(self.targets))
        return followed and isinstance(self.optimizer, Sgd)


def _check_finite(rows: np.ndarray, first_bad: int) -> None:
    """Refuse NaN and infinity in values `[targets, n]`, naming where they come from."""
    remedy = "lower the learning rate, or check the examples and targets"
    if first_bad >= 0:
        raise ValueError(
            "loss must have finite gradients, but the batch's has NaN or infinity at "
            f"step {first_bad}: {remedy}"
        )
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise ValueError(
            f"loss must have finite gradients, but those of target {bad[0]} have NaN "
            f"or infinity ({bad.size} of {len(rows)} targets do): {remedy}"
        )
