"""Optimizers, with the total weight at which a gradient enters a run's steps.

With momentum m a gradient of step t moves the parameters at steps t, t+1, ...: in all
by c_t times itself, with c_t = Σ_k m^k r_{t+k} of the rates r.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsel._inputs.checks import check_positive

Rate = float | Callable[[Any], Any]

# Terms of a geometric series beyond which a float64 sum no longer changes.
_LAST_TERM = 1e-17


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent, with momentum or without, as `optax.sgd`.

    Attributes:
        learning_rate: A number, or a schedule: from the step to the rate.
        momentum: Share of the last update that is kept, in [0, 1).
        nesterov: Whether momentum is Nesterov's.
        weight_decay: Added to the gradient, times the parameters, before momentum, as
            torch does. It moves the parameters, but belongs to no sample.

    Examples:
        >>> from jaxsel import attribute
        >>> rule = attribute.Sgd(0.1, momentum=0.9)
        >>> print(rule)
        Sgd(learning_rate=0.1, momentum=0.9)
    """

    learning_rate: Rate
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_share("momentum", self.momentum)
        check_positive("weight_decay", self.weight_decay, zero=True)

    def __repr__(self) -> str:
        return describe(self)

    def optimizer(self) -> optax.GradientTransformation:
        """Return the optimizer for a loop of optax."""
        sgd = optax.sgd(
            self.learning_rate, momentum=self.momentum or None, nesterov=self.nesterov
        )
        if not self.weight_decay:
            return sgd
        return optax.chain(optax.add_decayed_weights(self.weight_decay), sgd)


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam, or AdamW with `weight_decay`, as `optax.adamw`.

    Attributes:
        learning_rate: A number, or a schedule: from the step to the rate.
        b1: Decay of the mean of gradients, in [0, 1).
        b2: Decay of the mean of their squares, in [0, 1).
        eps: Added to the root of these.
        weight_decay: Decoupled. It moves the parameters, but belongs to no sample.

    Examples:
        >>> from jaxsel import attribute
        >>> rule = attribute.Adam(1e-3)
        >>> print(rule)
        Adam(learning_rate=0.001)
    """

    learning_rate: Rate
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_share("b1", self.b1)
        _check_share("b2", self.b2)
        check_positive("eps", self.eps)
        check_positive("weight_decay", self.weight_decay, zero=True)

    def __repr__(self) -> str:
        return describe(self)

    def optimizer(self) -> optax.GradientTransformation:
        """Return the optimizer for a loop of optax."""
        return optax.adamw(
            self.learning_rate,
            b1=self.b1,
            b2=self.b2,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )


Rule = Sgd | Adam


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """Total weights c_t of the gradient of each step in all updates from there on.

    Attributes:
        table: `[steps]`, or in units of the rate where the number of steps is not
            known.
        rate: None, or the rate, or its schedule, to multiply the table by.
    """

    table: np.ndarray
    rate: Rate | None

    def at_step(self, count: jax.Array, dtype: Any) -> jax.Array:
        """Return the weight at a step; the last one's beyond the table."""
        place = jnp.minimum(count, len(self.table) - 1)
        weight = jnp.asarray(self.table, dtype)[place]
        if self.rate is None:
            return weight
        rate = self.rate(count) if callable(self.rate) else self.rate
        return weight * jnp.asarray(rate).astype(dtype)


def weights_of(rule: Rule, steps: int | None) -> Weights:
    """Return the weights of a run of `steps` steps; of one without an end if None.

    Without an end the rate of a step counts for all later ones.
    """
    keep, rate = kept(rule), rule.learning_rate
    if steps is None:
        # Behind the last entry nothing changes any more.
        most = 1 if keep == 0 else math.ceil(math.log(_LAST_TERM) / math.log(keep))
        rates, after = np.ones(1 if isinstance(rule, Sgd) else most), 1 / (1 - keep)
    else:
        rates, after = rates_of(rate, steps), 0.0
    if isinstance(rule, Adam):
        # A gradient enters Adam's mean by 1 - b1, which update t divides by 1 - b1^t.
        # Without an end that divisor is 1 behind the last entry.
        counted = np.arange(1, len(rates) + 1)
        rates = rates * (1 - keep) / (1 - keep**counted)
        after = after * (1 - keep)
    table = np.empty(len(rates))
    # From the end, as c_t = r_t + m c_{t+1}.
    for t in range(len(rates) - 1, -1, -1):
        after = table[t] = rates[t] + keep * after
    if isinstance(rule, Sgd) and rule.nesterov and keep:
        # Nesterov's update is g plus m times the buffer: the buffer's whole weight
        # counts m times, and the step's rate once more.
        table = rates + keep * table
    return Weights(table, None if steps is not None else rate)


def kept(rule: Rule) -> float:
    """Return the share of its buffer that an optimizer keeps at each step."""
    return rule.momentum if isinstance(rule, Sgd) else rule.b1


def preconditioner(rule: Adam, state: Any, gradient: Any) -> Any:
    """Return 1 / (sqrt of the mean square + eps) of the step that takes a gradient.

    Args:
        rule: The optimizer.
        state: Its state before the step.
        gradient: Of the step, in the parameters' form.
    """
    adam = _adam_state(state)
    squares, count = adam.nu, jnp.asarray(adam.count) + 1

    def inverse(square: jax.Array, g: jax.Array) -> jax.Array:
        square = rule.b2 * square + (1 - rule.b2) * g**2
        unbiased = square / (
            1 - jnp.asarray(rule.b2, square.dtype) ** count.astype(square.dtype)
        )
        return 1 / (jnp.sqrt(unbiased) + rule.eps)

    return jax.tree.map(inverse, squares, gradient)


def _adam_state(state: Any) -> optax.ScaleByAdamState:
    """Return Adam's part of an optax state.

    Raises:
        ValueError: If there is none, or several.
    """

    def is_adam(part: Any) -> bool:
        return isinstance(part, optax.ScaleByAdamState)

    parts = [p for p in jax.tree.leaves(state, is_leaf=is_adam) if is_adam(p)]
    if len(parts) != 1:
        raise ValueError(
            "opt_state must be that of an Adam optimizer, with one ScaleByAdamState, "
            f"got {len(parts)} in a {type(state).__name__}"
        )
    return parts[0]


def describe(rule: Rule) -> str:
    """Return the name of the optimizer with its numbers, for `Values.method`."""
    rate = rule.learning_rate
    parts = [f"learning_rate={'schedule' if callable(rate) else format(rate, 'g')}"]
    for field in dataclasses.fields(rule)[1:]:
        value = getattr(rule, field.name)
        if value != field.default:
            shown = value if isinstance(value, bool) else format(value, "g")
            parts.append(f"{field.name}={shown}")
    return f"{type(rule).__name__}({', '.join(parts)})"


def rates_of(rate: Rate, steps: int) -> np.ndarray:
    if not callable(rate):
        return np.full(steps, float(rate))
    with jax.ensure_compile_time_eval():  # also where a loop is being traced
        rates = np.asarray(jax.vmap(rate)(jnp.arange(steps)), np.float64)
    if not np.isfinite(rates).all():
        first = int(np.flatnonzero(~np.isfinite(rates))[0])
        raise ValueError(
            f"learning_rate must be finite at each step, got {rates[first]} at step "
            f"{first}"
        )
    return rates


def _check_rate(rate: Any) -> None:
    if not callable(rate):
        check_positive("learning_rate", rate)


def _check_share(name: str, value: Any) -> None:
    if check_positive(name, value, zero=True) >= 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}")
