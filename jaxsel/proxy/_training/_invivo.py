"""In vivo training: a proxy end to end, on labels or on its target's outputs."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from jaxsel._inputs.checks import check_choice
from jaxsel._inputs.show import brief
from jaxsel.models import FineTuned, minimise
from jaxsel.proxy._exvivo import Source
from jaxsel.proxy._forward import Params, proxy_logits
from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._monotonicity import check_monotonicity
from jaxsel.proxy._proxy import Proxy
from jaxsel.proxy.families import score_of
from jaxsel.proxy.families._score_exact import entropy

Goal = Literal["labels", "logits", "ranks"]

# Entropies of two classes differ by .69 at most: a logistic loss needs them larger.
_SHARP = 8
_CHECKED = 2048  # samples that the entropy's emulator is checked on


@brief
@dataclasses.dataclass(frozen=True)
class ProxyLoss:
    """The loss of in vivo training.

    "labels": the cross-entropy. "logits": the squared distance from the target's
    logits, each less its mean over the classes. "ranks": the logistic loss over pairs
    of samples, so that exact entropies rank as the target's; nothing else is learned.
    To each comes the squared error of the entropy's emulator, where there is one,
    on the logits as they are: it follows them, and does not pull at them.

    Attributes:
        manifest: The proxy's architecture.
        goal: The kind of targets.
    """

    manifest: Manifest
    goal: Goal

    def __call__(self, params: Params, inputs: Any, targets: jax.Array) -> jax.Array:
        """Return the mean loss.

        Args:
            params: The proxy's parameters.
            inputs: Embedded rows `[n, L, H]` and their mask `[n, L]`.
            targets: Classes `[n]`, logits `[n, C]`, or entropies `[n]`.
        """
        logits = proxy_logits(params, *inputs, manifest=self.manifest)
        if self.goal == "labels":
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        elif self.goal == "ranks":
            # The offset is the log prior, and is not to be learned.
            entropies = entropy(logits - jax.lax.stop_gradient(params["offset"]))
            apart = entropies[:, None] - entropies
            sign = jnp.sign(targets[:, None] - targets)
            losses = jnp.where(sign == 0, 0, jax.nn.softplus(-sign * _SHARP * apart))
        else:
            apart = logits - targets
            losses = jnp.sum((apart - apart.mean(-1, keepdims=True)) ** 2, axis=-1) / 2
        loss = jnp.mean(losses)
        secure = score_of(self.manifest.score.secure)
        if secure.emulates:
            fixed_logits = jax.lax.stop_gradient(logits - params["offset"])
            guess = secure.apply(params["score"], fixed_logits)
            loss = loss + jnp.mean((guess - entropy(fixed_logits)) ** 2)
        return loss


def tune(
    proxy: Proxy,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None,
    targets: npt.ArrayLike | jax.Array,
    *,
    goal: Goal,
    key: jax.Array,
    epochs: float = 10,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    min_correlation: float | None = 0.9,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> tuple[Proxy, FineTuned]:
    """Train a proxy end to end, emulators and all.

    Gradients are clipped, and if the loss is not finite all the same, training stops
    with a reason and keeps the best parameters so far: deep proxies of polynomials can
    diverge.

    Args:
        proxy: A proxy with its emulators fitted (`emulate`).
        x: Embedded samples, `[n, L, H]`: the bootstrap set, or samples of the model
            owner's own to distil on.
        mask: `[n, L]`; all rows if None.
        targets: By `goal`.
        goal: "labels": classes `[n]`. "logits": the target's logits `[n, C]`. "ranks":
            its entropies `[n]`.
        key: Key of the order of samples.
        epochs: How often each sample is seen.
        batch_size: Samples in a step.
        learning_rate: The highest one; see `jaxsel.models.finetune` for the rest.
        min_correlation: The smallest rank correlation of emulated with exact entropies
            that is accepted, see `check_monotonicity`; on the first 2048 samples. None
            accepts any.
        checkpoint: A folder to go on from after a kill.
        progress: Show a bar.

    Returns:
        The trained proxy, and how training went.

    Raises:
        ValueError: If shapes don't fit, labels lie out of range, or the entropy's
            emulator does not rank as the entropy does.
    """
    check_choice("goal", goal, ("labels", "logits", "ranks"))
    manifest = proxy.manifest
    y = np.asarray(targets)
    n_classes = manifest.head.n_classes
    if goal == "labels":
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise ValueError(f"targets must be classes [n], got {y.dtype} {y.shape}")
        if len(y) and not 0 <= y.min() <= y.max() < n_classes:
            raise ValueError(
                f"targets must lie in [0, {n_classes}), got {y.min()} to {y.max()}"
            )
    elif goal == "ranks" and y.ndim != 1:
        raise ValueError(f"targets must be entropies [n], got {y.shape}")
    elif goal == "logits" and (y.ndim != 2 or y.shape[1] != n_classes):
        raise ValueError(f"targets must be logits [n, {n_classes}], got {y.shape}")
    onehot = manifest.inputs.embed == "onehot"
    x = np.asarray(x, np.int32 if onehot else np.float32)
    shown = np.ones(x.shape[:2]) if mask is None else np.asarray(mask)
    result = minimise(
        ProxyLoss(manifest, goal),
        proxy.params,
        (x, shown.astype(np.float32)),
        y.astype(np.int32 if goal == "labels" else np.float32),
        key=key,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        compute_dtype="float32",  # polynomials need more than bfloat16's 8 bits
        checkpoint=checkpoint,
        run_tag=f"{goal} {manifest.to_json()}",
        progress=progress,
    )
    tuned = Proxy(manifest, result.params)
    if result.stopped is None:
        logits = first_logits(tuned, x, shown)
        check_ranking(tuned, logits, min_correlation=min_correlation)
    return tuned, result


def first_logits(proxy: Proxy, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return the logits of the samples by which a ranking is checked."""
    return proxy.logits(x[:_CHECKED], None if mask is None else mask[:_CHECKED])


def check_ranking(
    proxy: Proxy, logits: np.ndarray, *, min_correlation: float | None
) -> None:
    """Raise if emulated and exact entropies of these logits rank differently.

    Nothing is refused where `min_correlation` is None.
    """
    emulates = score_of(proxy.manifest.score.secure).emulates
    if emulates and min_correlation is not None:
        exact = entropy(logits - proxy.params["offset"])
        check_monotonicity(proxy.scores(logits), exact, min_correlation=min_correlation)


def refit_score(
    proxy: Proxy,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None,
    *,
    key: jax.Array,
    source: Source = "both",
    n_points: int = 1_024_000,
    seeds: int = 1,
) -> Proxy:
    """Fit the emulator of the entropy again, to the logits that a proxy has now.

    In vivo training moves the logits away from the ones that it was fitted to.

    Args:
        proxy: A trained proxy.
        x: Samples as it reads them, see `proxy_inputs`: the bootstrap set.
        mask: `[n, L]`; all rows if None.
        key: For initial weights and batches.
        source: As in `train_mlps`.
        n_points: As in `train_mlps`.
        seeds: Initial weights, of which the best are kept.

    Returns:
        The proxy with that emulator; as it is if its score has none.

    Raises:
        ValueError: If logits are not finite, or an argument is out of range.
    """
    secure = score_of(proxy.manifest.score.secure)
    if not secure.emulates:
        return proxy
    logits = proxy.logits(np.asarray(x), None if mask is None else np.asarray(mask))
    logits = np.asarray(logits) - np.asarray(proxy.params["offset"])
    fitted = secure.fit(logits, key=key, source=source, n_points=n_points, seeds=seeds)
    return Proxy(proxy.manifest, proxy.params | {"score": fitted})
