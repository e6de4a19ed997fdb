"""Shared parts of KNN values that are linear in the gains: checks, form, kernel."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel import _native
from jaxsel._inputs.checks import INT32, check_choice, check_count
from jaxsel._results.types import Values
from jaxsel.neighbors import Exact, Metric, to_length

from ._accumulate import accumulate
from ._distance_weights import TracedWeights, trace_weights
from ._hybrid import HEAD, compiled_rounding, rounding, semivalue_hybrid
from ._options import Method, Options, Ties
from ._semivalue import semivalue, semivalue_tied, semivalue_top
from ._task import check_task
from ._weights import check_weights, rank_table

Array = npt.ArrayLike | jax.Array

# Rank weights below this share of the first one count as zero.
NEGLIGIBLE = 1e-9


def linear_values(
    name: str,
    rank_weights: Callable[[int, int], npt.ArrayLike],
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int,
    options: Options,
    n_classes: int | None = None,
    offset: Callable[[int, int, int], tuple[float, float]] | None = None,
    described: Callable[[np.ndarray], dict[str, Any]] | None = None,
) -> Values:
    """Compute any value that is linear in the gains.

    `described` maps the rank weights `[n]` to options shown in the result's method.
    """
    k = check_count("k", k, maximum=INT32)
    metric, ties, method = options.metric, options.ties, options.method
    weights = options.weights
    check_choice("ties", ties, ("stable", "average"))
    check_choice("method", method, ("exact", "hybrid"))
    if method == "hybrid" and ties == "average":
        raise ValueError("method='hybrid' needs ties='stable', got 'average'")
    task, classes = check_task(
        x,
        y,
        x_val,
        y_val,
        metric=metric,
        n_classes=n_classes,
        k=k,
        mesh=options.mesh if options.split == "training" else None,
    )
    n = len(task.x)
    omega = check_weights("rank_weights", rank_weights(n, k), n)
    form = _choose_form(omega, ties, method)
    call = describe(
        name,
        k=k,
        **(described(omega) if described else {}),
        metric=metric,
        ties=ties,
        method=method,
        n_classes=classes.n_classes if offset else None,
        weights=weights,
    )
    table = rank_table(omega, running=form in ("tied", "hybrid"))
    if form == "top":
        keep = _reach(omega)
        table = dataclasses.replace(
            table, weight=table.weight[:keep], drop=table.drop[:keep]
        )
    shift = None
    if offset is not None:
        shift = tuple(map(np.float32, offset(n, k, classes.n_classes)))
    traced, captured = (None, ()) if weights is None else trace_weights(weights, n)
    kernel = _Linear(
        gains=Gains(classes.gains, traced, metric),
        form=form,
        binary=classes.binary and weights is None,
        certified=method == "hybrid",
    )
    values = accumulate(
        kernel,
        (table, shift, captured),
        task,
        options=options,
        certified=method == "hybrid",
        method=call,
    )
    if weights is not None:
        check_weighted(values)
    return values


def _reach(omega: np.ndarray) -> int:
    """Count the ranks that matter: up to the last non-negligible weight, and one."""
    matter = np.flatnonzero(np.abs(omega) > NEGLIGIBLE * np.abs(omega).max(initial=0))
    # One more rank, as the kernel takes gains behind its last rank for 0: the last
    # weight that counts meets the gain one rank behind it (leave-one-out: u_{K+1}).
    return min(int(matter[-1]) + 2, len(omega)) if matter.size else 1


def sorts_faster() -> bool:
    """Return whether the exact value costs less: where sorting is compiled."""
    return jax.default_backend() == "cpu" and _native.available()


def _choose_form(omega: np.ndarray, ties: Ties, method: Method) -> str:
    n = len(omega)
    if ties == "average":
        return "tied"
    if _reach(omega) <= n // 8:
        return "top"
    if method == "hybrid" and n > 2 * HEAD and not sorts_faster():
        if np.any(np.diff(omega) > 0):
            raise ValueError("method='hybrid' needs rank_weights that do not increase")
        return "hybrid"
    return "sorted"


@dataclasses.dataclass(frozen=True)
class Gains:
    """Gains of the training points for one query, weighted by distance."""

    of_labels: Callable[[Any, Any], jax.Array]
    weights: TracedWeights | None
    metric: Metric

    def __call__(
        self, distances: jax.Array, train: Any, query: Any, captured: Any
    ) -> jax.Array:
        gains = self.of_labels(train, query)
        if self.weights is not None:
            gains = gains * self.weights(captured, to_length(distances, self.metric))
        return gains.astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class _Linear:
    """The kernel for `accumulate`: gains, one of the semivalue kernels, an offset."""

    gains: Gains
    form: str
    binary: bool
    certified: bool

    @property
    def orders(self) -> bool:
        """True if only the order of the distances matters."""
        return self.form != "hybrid" and self.gains.weights is None

    @property
    def marks(self) -> bool:
        """True if its first value is NaN where the order needs to be settled again."""
        return self.form in ("sorted", "tied")

    def __call__(
        self,
        params: Any,
        distances: jax.Array,
        train: Any,
        query: Any,
        exact: Exact | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        table, shift, captured = params
        gains = self.gains(distances, train, query, captured)
        bound = None
        if self.form == "top":
            values = semivalue_top(
                distances, gains, table.weight, table.drop, exact=exact
            )
        elif self.form == "tied":
            values = semivalue_tied(
                distances, gains, table, exact=exact, binary=self.binary
            )
        elif self.form == "hybrid":
            values, bound = semivalue_hybrid(
                distances, gains, table, binary=self.binary, exact=exact
            )
        else:
            values = semivalue(distances, gains, table, exact=exact, binary=self.binary)
        if shift is not None:
            values = values + (shift[0] + shift[1] * jnp.sum(gains))
        # An exact form was chosen instead: rounding is all that is left to certify.
        if self.certified and bound is None:
            span = jnp.arange(2, dtype=jnp.float32) if self.binary else gains
            if self.form == "sorted" and sorts_faster():
                bound = compiled_rounding(table, span)[None]  # of all points alike
            else:
                bound = rounding(table.weight, span)[None]
        return values, bound


def check_weighted(values: Values) -> None:
    """Raise if distance weights such as 1 / 0 made values NaN or infinite."""
    if not bool(jnp.isfinite(values.values).all()):
        raise ValueError(
            "weights must return finite numbers for all distances, zero included; it "
            "returned NaN or infinity for some"
        )


def describe(name: str, **options: Any) -> str:
    """Write a call as text, which two results must share to be merged."""
    shown = []
    for key, value in options.items():
        if value is not None:
            shown.append(f"{key}={getattr(value, '__name__', value)}")
    return f"{name}({', '.join(shown)})"
