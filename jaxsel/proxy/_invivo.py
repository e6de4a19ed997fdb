"""In vivo: a proxy trained end to end, on labels or on what its target says."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from jaxsel._checks import check_choice
from jaxsel.models import FineTuned, minimise

from ._entropy import entropy, entropy_emulator
from ._forward import Params, proxy_logits
from ._manifest import Manifest

Goal = Literal["labels", "logits"]


@dataclasses.dataclass(frozen=True)
class ProxyLoss:
    """What in vivo training minimises.

    "labels": the cross-entropy. "logits": the squared distance from the target's
    logits, each less its mean over the classes. To either comes the squared error of
    the entropy's emulator, where there is one, on the logits as they are: it follows
    them, and does not pull at them.

    Attributes:
        manifest: The proxy's architecture.
        goal: What the targets are.
    """

    manifest: Manifest
    goal: Goal

    def __call__(self, params: Params, inputs: Any, targets: jax.Array) -> jax.Array:
        """Return the mean loss.

        Args:
            params: The proxy's parameters.
            inputs: Embedded rows `[n, L, H]` and their mask `[n, L]`.
            targets: Classes `[n]`, or logits `[n, C]`.
        """
        logits = proxy_logits(params, *inputs, manifest=self.manifest)
        if self.goal == "labels":
            each = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        else:
            apart = logits - targets
            each = jnp.sum((apart - apart.mean(-1, keepdims=True)) ** 2, axis=-1) / 2
        loss = jnp.mean(each)
        secure = self.manifest.score.secure
        if secure.family == "mlp":
            seen = jax.lax.stop_gradient(logits - params["offset"])
            guess = entropy_emulator(secure.entry()).apply(params["score"], seen)
            loss = loss + jnp.mean((guess - entropy(seen)) ** 2)
        return loss


def tune(
    params: Params,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array,
    targets: npt.ArrayLike | jax.Array,
    *,
    manifest: Manifest,
    goal: Goal,
    key: jax.Array,
    epochs: float = 10,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    checkpoint: str | None = None,
    progress: bool = False,
) -> FineTuned:
    """Train a proxy end to end, emulators and all.

    Gradients are clipped, and if the loss is not finite all the same, training stops
    with a reason and keeps the best parameters so far: deep proxies of polynomials can
    diverge.

    Args:
        params: The proxy's parameters, emulators fitted (`emulate`).
        x: Embedded samples, `[n, L, H]`: the bootstrap set, or samples of the model
            owner's own to distil on.
        mask: `[n, L]`.
        targets: By `goal`.
        manifest: The architecture.
        goal: "labels": classes `[n]`. "logits": the target's logits `[n, C]`.
        key: Key of the order of samples.
        epochs: How often each sample is seen.
        batch_size: Samples in a step.
        learning_rate: The highest one; see `jaxsel.models.finetune` for the rest.
        checkpoint: A folder to go on from after a kill.
        progress: Show a bar.

    Raises:
        ValueError: If shapes don't fit, or labels lie out of range.
    """
    check_choice("goal", goal, ("labels", "logits"))
    y = np.asarray(targets)
    classes = manifest.head.classes
    if goal == "labels":
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise ValueError(f"targets must be classes [n], got {y.dtype} {y.shape}")
        if len(y) and not 0 <= y.min() <= y.max() < classes:
            raise ValueError(
                f"targets must lie in [0, {classes}), got {y.min()} to {y.max()}"
            )
    elif y.ndim != 2 or y.shape[1] != classes:
        raise ValueError(f"targets must be logits [n, {classes}], got {y.shape}")
    return minimise(
        ProxyLoss(manifest, goal),
        params,
        (np.asarray(x, np.float32), np.asarray(mask, np.float32)),
        y.astype(np.int32 if goal == "labels" else np.float32),
        key=key,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        checkpoint=checkpoint,
        progress=progress,
    )
