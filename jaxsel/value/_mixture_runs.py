"""Many small trainings on mixtures of data domains, as one program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import grad, jit, lax_map, tree_map
from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel._inputs.owners import check_owners
from jaxsel._inputs.parameters import Loss, check_examples, check_loss
from jaxsel._inputs.show import brief
from jaxsel._runs.progress import track

from ._mixture_design import TOLERANCE, check_mixtures, mixture_design

if TYPE_CHECKING:
    import optax

    from ._mixture_kernel import MixtureModel
    from ._mixture_response import Goal, MixtureResponse

_GOLDEN = 2654435769  # 2³² times the golden ratio: its multiples spread evenly


@brief
@dataclasses.dataclass(frozen=True)
class MixtureRecipe:
    """A loss and how to minimise it, the same for all runs.

    Args:
        loss: `loss(params, example) -> scalar` for one example, as for
            `attribute.in_run_shapley`.
        optimizer: An optax transformation, with its schedule.
        steps: Number of steps, of every run.
        batch_size: Examples in a step.
        metric: `metric(params, targets) -> scalar` after the last step; the mean loss
            of the targets if None.

    Raises:
        TypeError: If a field is of another kind, or cannot be hashed.
        ValueError: If a count is below 1.
    """

    loss: Loss
    optimizer: optax.GradientTransformation
    _: dataclasses.KW_ONLY
    steps: int
    batch_size: int
    metric: Callable[[Any, Any], jax.Array] | None = None

    def __post_init__(self) -> None:
        check_loss(self.loss)
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        if self.metric is not None and not callable(self.metric):
            raise TypeError(
                f"metric must be a function of (params, targets), got {self.metric!r}"
            )
        if not hasattr(self.optimizer, "update"):
            raise TypeError(
                "optimizer must be an optax transformation, such as optax.adam(1e-3), "
                f"got {self.optimizer!r}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MixtureRuns:
    """Mixtures and the metrics that runs reached on them.

    Attributes:
        mixtures: Weights, `[R, D]` float64.
        metrics: Metric of each run, `[R]` float64; NaN or infinite where it diverged.
        upper: Upper bounds of the weights, `[D]`.
        names: Names of the domains, in the order of the weights.
    """

    mixtures: np.ndarray
    metrics: np.ndarray
    upper: np.ndarray
    names: tuple[Any, ...]

    def __repr__(self) -> str:
        sound = self.metrics[np.isfinite(self.metrics)]
        span = f"{sound.min():.4g} to {sound.max():.4g}" if len(sound) else "none"
        runs, domains = self.mixtures.shape
        diverged = f", {runs - len(sound)} diverged" if len(sound) < runs else ""
        return f"MixtureRuns({runs} runs, {domains} domains, metrics {span}{diverged})"

    def merge(self, *others: MixtureRuns) -> MixtureRuns:
        """Join runs on the same domains.

        Raises:
            ValueError: If names or bounds differ.
        """
        for other in others:
            if other.names != self.names or not np.allclose(other.upper, self.upper):
                raise ValueError(
                    "runs must have the same domains and bounds to be merged, got "
                    f"{self.names} up to {self.upper.tolist()} and {other.names} up to "
                    f"{other.upper.tolist()}"
                )
        runs = (self, *others)
        return dataclasses.replace(
            self,
            mixtures=np.concatenate([run.mixtures for run in runs]),
            metrics=np.concatenate([run.metrics for run in runs]),
        )

    def response(
        self, *, goal: Goal = "min", model: MixtureModel | None = None
    ) -> MixtureResponse:
        """Fit the metric's response: `mixture_response` of these runs."""
        from ._mixture import mixture_response

        return mixture_response(
            self.mixtures,
            self.metrics,
            goal=goal,
            model=model,
            upper=self.upper,
            names=self.names,
        )


def mixture_runs(
    recipe: MixtureRecipe,
    params: Any,
    examples: Any,
    targets: Any,
    *,
    key: jax.Array,
    mixtures: npt.ArrayLike | int = 64,
    domains: npt.ArrayLike | None = None,
    max_epochs: float | None = 4.0,
    chunk_size: int = 64,
    progress: bool = False,
) -> MixtureRuns:
    """Train one small model for each mixture of the domains, all in one program.

    A mixture gives the share of each domain among the examples that a run is trained
    on; all runs take equally many steps from the same start. The shares are kept batch
    by batch, as near as whole examples allow, and each domain is passed through in a
    random order of the run's own. No domain is seen more than `max_epochs` times, to
    within two examples a pass: this bounds its weight.

    Costs `R * steps * batch_size` forward and backward passes, and memory of
    `chunk_size` times the parameters, the optimizer, the passes over a batch and over
    all targets, and `4 * steps * batch_size` bytes.

    Args:
        recipe: Loss, optimizer, steps and batches.
        params: Parameters to start from, any pytree of arrays.
        examples: A pytree of arrays `[n, ...]`, with `domains`; or a mapping from the
            name of each domain to its examples.
        targets: Validation samples, a pytree of arrays `[targets, ...]`.
        key: Key of the design and the runs. The order of run i depends on it and on i.
        mixtures: Weights `[R, D]`, or the number of runs, for `mixture_design`.
        domains: Label of the domain, or owner, of each example, `[n]`; the weights are
            in the order in which labels appear.
        max_epochs: Most passes over a domain; None for no bound.
        chunk_size: Runs trained at once.
        progress: Whether to show a bar.

    Returns:
        Mixtures, metrics, bounds and names.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a domain is empty, or there are too few
            examples for the steps.

    References:
        Liu et al., "RegMix: Data Mixture as Regression for Language Model
        Pre-training", ICLR 2025, arXiv:2407.01492; the bound on passes follows
        Muennighoff et al., "Scaling Data-Constrained Language Models", NeurIPS 2023.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from jaxsel import value
        >>> def loss(w, number):  # the mean of what it sees
        ...     return (w - number) ** 2
        >>> recipe = value.MixtureRecipe(loss, optax.sgd(0.1), steps=50, batch_size=8)
        >>> runs = value.mixture_runs(
        ...     recipe, jnp.zeros(()), {"a": jnp.ones(200), "b": -jnp.ones(200)},
        ...     jnp.ones(1), key=jax.random.key(0), mixtures=[[1.0, 0.0], [0.5, 0.5]],
        ... )
        >>> print(runs.metrics.round(2))
        [0. 1.]
    """
    if not isinstance(recipe, MixtureRecipe):
        raise TypeError(f"recipe must be a value.MixtureRecipe, got {recipe!r}")
    check_count("chunk_size", chunk_size)
    examples, codes, names = _joined(examples, domains)
    targets = check_examples(targets)
    start: Any = tree_map(lambda leaf: jnp.asarray(leaf), params)
    counts = np.bincount(codes, minlength=len(names))
    upper = _bounds(recipe, counts, max_epochs)
    if isinstance(mixtures, int):
        design_key = jax.random.fold_in(key, 2**32 - 1)
        mixtures = mixture_design(design_key, mixtures, upper)
    weights = check_mixtures("mixtures", mixtures, len(names), upper)
    _check_outputs(recipe, start, examples, targets)
    size = min(chunk_size, len(weights))
    slices = list(chunk_slices(len(weights), size))
    metrics = np.empty(len(weights))
    shared = start, examples, targets, jnp.asarray(codes, jnp.int32)
    for part in track(slices, progress=progress, label="runs on mixtures"):
        numbers = take_rows(np.arange(len(weights), dtype=np.uint32), part, size)
        rows = jnp.asarray(take_rows(weights, part, size), jnp.float32)
        results = _train(recipe, key, jnp.asarray(numbers), rows, *shared)
        metrics[part] = np.asarray(results)[: part.stop - part.start]
    return MixtureRuns(mixtures=weights, metrics=metrics, upper=upper, names=names)


@jit(static_argnums=0)
def _train(
    recipe: MixtureRecipe,
    key: jax.Array,
    numbers: jax.Array,
    mixtures: jax.Array,
    params: Any,
    examples: Any,
    targets: Any,
    codes: jax.Array,
) -> jax.Array:
    """Return the metric of each run, `[chunk]`."""

    def plan(run: tuple[jax.Array, jax.Array]) -> jax.Array:
        number, mixture = run
        key_of_run = jax.random.fold_in(key, number)
        return planned_rows(key_of_run, mixture, codes, recipe.steps, recipe.batch_size)

    # One after the other: sorts of all examples for all runs would take memory.
    rows = lax_map(plan, (numbers, mixtures))

    def losses(params: Any, batch: Any) -> jax.Array:
        return jnp.mean(jax.vmap(recipe.loss, (None, 0))(params, batch))

    def run(rows: jax.Array) -> jax.Array:
        import optax

        def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
            params, state = carry
            batch = tree_map(lambda leaf: leaf[rows], examples)
            gradient = grad(functools.partial(losses, batch=batch))(params)
            updates, state = recipe.optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        begin = params, recipe.optimizer.init(params)
        (trained, _), _ = jax.lax.scan(step, begin, rows)
        measure = losses if recipe.metric is None else recipe.metric
        return measure(trained, targets)

    return jax.vmap(run)(rows)


def planned_rows(
    key: jax.Array, mixture: jax.Array, codes: jax.Array, steps: int, batch_size: int
) -> jax.Array:
    """Return the examples of each step of a run, `[steps, batch_size]` int32.

    Args:
        key: Key of the run.
        mixture: Weights, `[D]`, not all 0.
        codes: Domain of each example, `[n]` int32.
        steps: Number of steps.
        batch_size: Examples in a step.
    """
    order_key, start_key = jax.random.split(key)
    n, domains = codes.shape[0], mixture.shape[0]
    order = jnp.lexsort((jax.random.bits(order_key, (n,)), codes)).astype(jnp.int32)
    counts = jnp.zeros(domains, jnp.int32).at[codes].add(1)
    ends = jnp.cumsum(mixture)
    ends = ends / ends[-1]
    # Slot j of a batch stands at (j + u) / batch_size of the cumulative weights; u of
    # the steps are spread evenly, so that shares are right over few steps, too.
    start = jax.random.bits(start_key, (), jnp.uint32)
    offset = start + jnp.arange(steps, dtype=jnp.uint32) * jnp.uint32(_GOLDEN)
    offset = (offset >> 8).astype(jnp.float32) * jnp.float32(2**-24)
    below = jnp.ceil(ends[None] * batch_size - offset[:, None])
    below = jnp.clip(below, 0, batch_size).astype(jnp.int32)
    below = jnp.where(ends[None] >= 1, batch_size, below)
    slots = jnp.arange(batch_size, dtype=jnp.int32)
    domain = jnp.sum(below[:, None] <= slots[None, :, None], axis=2, dtype=jnp.int32)
    first = jnp.pad(below, ((0, 0), (1, 0)))[:, :-1]
    taken = below - first
    before = jnp.cumsum(taken, axis=0) - taken
    # The number of the example among those of its domain in the run, modulo a pass.
    number = jnp.take_along_axis(before - first, domain, axis=1) + slots[None]
    position = number % jnp.maximum(counts, 1)[domain]
    return order[(jnp.cumsum(counts) - counts)[domain] + position]


def _joined(examples: Any, domains: Any) -> tuple[Any, np.ndarray, tuple[Any, ...]]:
    """Return all examples, the number of the domain of each, and the names."""
    if domains is not None:
        examples = check_examples(examples)
        owners = check_owners(domains, len(jax.tree.leaves(examples)[0]))
        return examples, owners.codes, owners.names
    if not issubclass(type(examples), Mapping) or not examples:
        raise TypeError(
            "examples must be a mapping from names of domains to their examples unless "
            f"domains has a label for each, got {type(examples).__name__}"
        )
    parts: dict[Any, Any] = dict(examples)
    for name, part in parts.items():
        if not all(np.shape(leaf)[:1] != (0,) for leaf in jax.tree.leaves(part)):
            raise ValueError(f"examples must not be empty, but domain {name!r} is")
    checked = [check_examples(part) for part in parts.values()]
    forms: list[Any] = [jax.tree.structure(part) for part in checked]
    structures = {str(form) for form in forms}
    leaves: list[list[Any]] = [jax.tree.leaves(part) for part in checked]
    shapes = {str([leaf.shape[1:] for leaf in part]) for part in leaves}
    if len(structures) > 1 or len(shapes) > 1:
        raise ValueError(
            "examples must have the same form in all domains, got "
            f"{sorted(structures)} of shapes {sorted(shapes)}"
        )
    lengths = [len(part[0]) for part in leaves]
    codes = np.repeat(np.arange(len(checked), dtype=np.int32), lengths)
    return tree_map(lambda *leaves: jnp.concatenate(leaves), *checked), codes, (*parts,)


def _bounds(
    recipe: MixtureRecipe, counts: np.ndarray, max_epochs: float | None
) -> np.ndarray:
    if max_epochs is None:
        return np.ones(len(counts))
    check_positive("max_epochs", max_epochs)
    budget = recipe.steps * recipe.batch_size
    upper = np.minimum(1, max_epochs * counts / budget)
    if upper.sum() < 1 - TOLERANCE:
        raise ValueError(
            f"max_epochs must be at least {budget / counts.sum():.3g} for "
            f"{recipe.steps} steps of {recipe.batch_size} of {counts.sum()} examples, "
            f"got {max_epochs}"
        )
    return upper


def _check_outputs(
    recipe: MixtureRecipe, params: Any, examples: Any, targets: Any
) -> None:
    """Refuse losses and metrics that are no scalars, before anything is compiled."""
    first = tree_map(lambda leaf: leaf[0], examples)
    calls = [("loss", recipe.loss, first)]
    if recipe.metric is None:
        calls.append(("loss", recipe.loss, tree_map(lambda leaf: leaf[0], targets)))
    else:
        calls.append(("metric", recipe.metric, targets))
    for name, function, argument in calls:
        shape = jax.eval_shape(function, params, argument)
        if getattr(shape, "shape", None) != ():
            raise ValueError(
                f"{name} must return a scalar, got {getattr(shape, 'shape', shape)}"
            )
