"""Runs with torch's start and NumPy's order, as the script of dattri's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel import tasks
from jaxsel.attribute import Recipe
from jaxsel.attribute._metagradient import weight_derivative
from jaxsel.attribute._recipe import TrainingPlan
from jaxsel.tasks._lds import Lds
from jaxsel.tasks._subsets import SubsetRuns

if TYPE_CHECKING:
    from ._setups import Data

STATES = 25  # kept of the 600 of a run
TORCH = "With torch's initial weights"


def dropped(
    recipe: Recipe, data: Data, masks: np.ndarray, seed: int, *, weight: float
) -> Lds:
    """Score the metagradient of one run on the same run without some samples.

    Args:
        recipe: Set-up A.
        data: Training samples and targets.
        masks: The samples that are kept, `[m, n]`.
        seed: Of torch's initial weights and of NumPy's orders.
        weight: Weight of the samples at which the run is differentiated.
    """
    start = _initial(seed)
    order = _rows(recipe, len(data.x), seed)

    def plan(kind: Any) -> TrainingPlan:
        shares = jnp.full(order.shape, 1 / order.shape[1], kind)
        params = [jnp.asarray(layer, kind) for layer in start]
        return TrainingPlan(params, jnp.asarray(order), shares)

    x, y, x_val, y_val = map(jnp.asarray, data)

    @jax.jit
    def outputs(kept: jax.Array) -> jax.Array:
        params = recipe.follow(plan(jnp.float32), x, y, kept)
        return recipe.measure("loss", recipe.apply(params, x_val), y_val)

    measured = jax.lax.map(outputs, jnp.asarray(masks, jnp.float32), batch_size=25)
    runs = SubsetRuns(
        masks=masks,
        outputs=np.asarray(measured)[:, None],
        output="loss",
        same_seed=True,
    )
    with jax.enable_x64(True):
        # Rectifiers, rounded, may be on the other side of their bend.
        wide, labels = plan(jnp.float64), (jnp.asarray(data.y), jnp.asarray(data.y_val))
        pixels = jnp.asarray(data.x, jnp.float64), jnp.asarray(data.x_val, jnp.float64)
        weights, apart = jnp.full(len(data.x), weight), jnp.eye(len(data.x_val))

        @jax.jit
        def derivative() -> jax.Array:
            train, targets = zip(pixels, labels, strict=True)
            return weight_derivative(
                recipe, wide, *train, weights, *targets, apart, segments=STATES
            )[1]

        scores = np.asarray(derivative())
    return tasks.lds(scores, runs, key=jax.random.key(0))


def torch_line(scores: list[Lds], whole: Lds) -> str:
    """Write the scores of runs of seeds 0 and up, and of weights of 1 in the first."""
    first, means = scores[0], [s.mean for s in scores]
    return (
        f"{TORCH} of seed 0, and the orders of NumPy's, as in dattri's figures, the "
        "metagradient scores "
        f"{first.mean:.3f} ± {first.stderr_targets:.3f} ± {first.stderr_subsets:.3f} "
        f"on drops, and {whole.mean:.3f} with `drop_share=0`; with seeds 0 to "
        f"{len(means) - 1} {np.mean(means):.3f} ({min(means):.3f} to {max(means):.3f})."
    )


def _initial(seed: int) -> list[np.ndarray]:
    """Draw torch's layers `[inputs + 1, outputs]`, with the bias as last row."""
    import torch

    torch.manual_seed(seed)
    layers = torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)
    pairs = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
    return [np.concatenate([w.numpy().T, b.numpy()[None]]) for w, b in pairs]


def _rows(recipe: Recipe, n: int, seed: int) -> np.ndarray:
    """Return the samples of each step, `[steps, b]`."""
    rng = np.random.default_rng(seed)
    epochs = [rng.permutation(n) for _ in range(recipe.epochs)]
    return np.concatenate(epochs).reshape(-1, recipe.batch_size)
