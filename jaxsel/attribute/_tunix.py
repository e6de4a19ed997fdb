"""In-run values of a training by Tunix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import optax
from flax import nnx

from jaxsel._results.types import Reduce, Values

from ._in_run_recorder import InRun
from ._in_run_rules import Rule


class TunixHooks:
    """Hooks that record in-run values while a `PeftTrainer` of Tunix trains.

    Make them after `with_loss_fn` and `with_gen_model_input_fn`, and pass them as both
    kinds of hooks:

        hooks = TunixHooks(trainer, batches, targets, n, optimizer=Adam(1e-3))
        trainer.with_training_hooks(hooks)
        trainer.with_data_hooks(hooks)
        trainer.train([])  # batches come from the hooks
        values = hooks.values()

    The trainer's loss is taken for batches of one example each, and the batch's loss
    should be their mean: where it is a mean over all tokens of a batch, an example
    counts by the mean over its own tokens instead. Parameters are those that Tunix
    trains, LoRA's if there are any. The training itself is not changed; a step of the
    recorder comes on top, with a backward pass of its own. Frozen weights are constants
    of its compiled program.

    Args:
        trainer: A `tunix.PeftTrainer`, without gradient accumulation.
        batches: Yields pairs of a batch, as the trainer takes it, and the rows `[b]` of
            its samples.
        targets: Validation examples: a batch as the trainer takes it, any length.
        n: Number of training samples.
        optimizer: `Sgd` or `Adam` with the numbers of the trainer's optimizer.
        steps: Steps that the run will have, if known; see `InRun`.
        eval_batches: Batches of the trainer's own evaluation, for each of its rounds.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If one is out of range, or the trainer accumulates gradients.
    """

    def __init__(
        self,
        trainer: Any,
        batches: Iterable[tuple[Any, Any]],
        targets: Any,
        n: int,
        *,
        optimizer: Rule,
        steps: int | None = None,
        eval_batches: Iterable[Any] = (),
    ):
        accumulated = getattr(trainer.config, "gradient_accumulation_steps", None)
        if accumulated not in (None, 1):
            raise ValueError(
                "trainer must not accumulate gradients, got "
                f"gradient_accumulation_steps={accumulated}"
            )
        has_lora = bool(jax.tree.leaves(nnx.state(trainer.model, nnx.LoRAParam)))
        self._wrt = nnx.LoRAParam if has_lora else nnx.Param
        graphdef, params, rest = nnx.split(trainer.model, self._wrt, ...)
        loss_of, inputs_of = trainer.loss_fn, trainer.gen_model_input_fn

        def loss(params: Any, example: Any) -> jax.Array:
            batch = jax.tree.map(lambda leaf: leaf[None], example)
            output = loss_of(nnx.merge(graphdef, params, rest), **inputs_of(batch))
            if isinstance(output, tuple):  # with auxiliary results
                output = output[0]
            if hasattr(output, "primary_loss"):  # Tunix's LossOutput
                output = output.primary_loss.compute()
            return output

        self.recorder = InRun(loss, targets, n, optimizer=optimizer, steps=steps)
        self._state = self.recorder.init(params)
        self._batches = iter(batches)
        self._eval_batches, self._round = eval_batches, iter(eval_batches)
        self._next: tuple[Any, Any] | None = None

        def step(state: Any, params: Any, opt_state: Any, batch: Any, rows: Any) -> Any:
            return self.recorder.step(state, params, opt_state, batch, rows)[1]

        self._step = jax.jit(step, donate_argnums=0)

    def __repr__(self) -> str:
        return f"TunixHooks({self.recorder})"

    def values(self, *, reduce: Reduce = "mean", run_tag: str = "") -> Values:
        """Return the values of all samples; see `InRun.finish`."""
        return self.recorder.finish(self._state, reduce=reduce, run_tag=run_tag)

    def load_next_train_batch(self, train_ctx: Any) -> Any:
        """Return the next batch, or None after the last."""
        self._next = next(self._batches, None)
        return None if self._next is None else self._next[0]

    def load_next_eval_batch(self, train_ctx: Any) -> Any:
        """Return the next batch of an evaluation, or None at its end."""
        batch = next(self._round, None)
        if batch is None:
            self._round: Iterator[Any] = iter(self._eval_batches)
        return batch

    def on_train_step_start(self, train_ctx: Any) -> None:
        """Record the step of the batch that was loaded last."""
        assert self._next is not None
        batch, rows = self._next
        params = nnx.state(train_ctx.model, self._wrt)
        opt_state = _plain(train_ctx.optimizer.opt_state, params)
        self._state = self._step(self._state, params, opt_state, batch, rows)

    def on_train_start(self, train_ctx: Any) -> None:
        """Do nothing."""

    def on_train_end(self, train_ctx: Any) -> None:
        """Do nothing."""

    def on_train_step_end(
        self, train_ctx: Any, train_step: int, train_loss: float
    ) -> None:
        """Do nothing."""

    def on_eval_step_start(self, train_ctx: Any) -> None:
        """Do nothing."""

    def on_eval_step_end(self, train_ctx: Any, eval_loss: float) -> None:
        """Do nothing."""


def _plain(opt_state: Any, params: Any) -> Any:
    """Return Adam's part of a state of `nnx.Optimizer`, in the form of the parameters.

    Other optimizers have none, and the recorder needs none.
    """
    form = jax.tree.structure(params)

    def is_adam(part: Any) -> bool:
        return isinstance(part, optax.ScaleByAdamState)

    return [
        optax.ScaleByAdamState(
            count=jax.tree.leaves(part.count)[0],
            mu=form.unflatten(jax.tree.leaves(part.mu)),
            nu=form.unflatten(jax.tree.leaves(part.nu)),
        )
        for part in jax.tree.leaves(opt_state, is_leaf=is_adam)
        if is_adam(part)
    ]
