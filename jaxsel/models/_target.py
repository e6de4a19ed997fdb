"""A loaded encoder or classifier, and its outputs for any number of samples."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import nnx

from jaxsel._inputs.checks import (
    check_choice,
    check_count,
    check_finite,
    check_same_length,
)
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel._runs.progress import track

from ._encoder import Read, pool as reduce_rows
from ._fit import Params
from ._layer import EncoderConfig
from ._tokens import Tokens

_SHORTEST = 8  # tokens of the smallest shape that is compiled


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """A model that data is chosen for: `Classifier`, split, and where its tokens are.

    After training, `dataclasses.replace(target, params=...)`.

    Attributes:
        config: The encoder's architecture.
        graphdef: Static part of a `Classifier`.
        params: Its parameters, float32.
        read: Pooling in front of its head: "cls" or "mean".
        tokenizer: Its `tokenizer.json`, or None.
    """

    config: EncoderConfig
    graphdef: nnx.GraphDef[Any]
    params: Params
    read: Read
    tokenizer: Path | None = None

    def __repr__(self) -> str:
        c = self.config
        return (
            f"Target({c.kind}, {c.layers} layers of {c.hidden} with {c.heads} heads, "
            f"n_classes={self.n_classes}, read={self.read!r})"
        )

    @property
    def n_classes(self) -> int | None:
        """Number of classes of the head; None without a head."""
        head = nnx.merge(self.graphdef, self.params).head
        return None if head is None else head.kernel.shape[1]

    def logits(
        self,
        inputs: Tokens | npt.ArrayLike,
        mask: npt.ArrayLike | None = None,
        *,
        batch_size: int = 64,
        progress: bool = False,
    ) -> np.ndarray:
        """Return the logits of n samples, `[n, classes]`.

        Args:
            inputs: `Tokens`, tokens `[n, L]`, or images `[n, side, side, channels]`.
            mask: Text: `[n, L]` bool; if None, the mask of `Tokens`, or all.
            batch_size: Samples of one forward pass; texts are sorted by length and cut
                to the next power of two, each of which is compiled once.
            progress: Show a bar.

        Raises:
            TypeError: If tokens are not integers.
            ValueError: If `inputs` doesn't fit the model, or the model has no head.
        """
        return self._run(_logits, inputs, mask, batch_size, progress)

    def features(
        self,
        inputs: Tokens | npt.ArrayLike,
        mask: npt.ArrayLike | None = None,
        *,
        pool: Read | None = None,
        layers: Sequence[int] | None = None,
        batch_size: int = 64,
        progress: bool = False,
    ) -> np.ndarray:
        """Return pooled rows of n samples, the input of a head, `[n, H]`.

        Args:
            inputs: As for `logits`.
            mask: As for `logits`.
            pool: "cls" or "mean"; `read` if None.
            layers: Pool the rows after each of these layers, 0 for the embedded ones,
                side by side: `[n, len(layers) H]`. The last layer only if None.
            batch_size: As for `logits`.
            progress: Likewise.

        Raises:
            TypeError: If tokens are not integers.
            ValueError: If `inputs` doesn't fit the model.
        """
        read = self.read if pool is None else pool
        check_choice("pool", read, ("cls", "mean"))
        if layers is not None:
            layers = tuple(layers)
            if not layers or not set(layers) <= set(range(self.config.layers + 1)):
                raise ValueError(
                    f"layers must be from 0 to {self.config.layers}, one or more, got "
                    f"{layers}"
                )
        run = functools.partial(apply_features, read=read, layers=layers)
        return self._run(run, inputs, mask, batch_size, progress)

    def head_input_and_logits(
        self,
        inputs: Tokens | npt.ArrayLike,
        mask: npt.ArrayLike | None = None,
        *,
        batch_size: int = 64,
        progress: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the head's input `[n, H]` and its logits `[n, classes]`, in one pass.

        From both follow the gradients of the head, with `gradients.last_layer`.

        Args:
            inputs: As for `logits`.
            mask: As for `logits`.
            batch_size: As for `logits`.
            progress: Show a bar.

        Raises:
            TypeError: If tokens are not integers.
            ValueError: If `inputs` doesn't fit the model, or the model has no head.
        """
        model = nnx.merge(self.graphdef, self.params)
        if model.head is None:
            raise ValueError("this model has no head: load it with n_classes=")
        features = self.features(inputs, mask, batch_size=batch_size, progress=progress)
        rows = model.head_input(jnp.asarray(features))
        return np.asarray(rows), np.asarray(model.head(rows))

    def _run(
        self, run: Any, inputs: Any, mask: Any, batch_size: int, progress: bool
    ) -> np.ndarray:
        """Run in batches; texts are sorted by length, to save padding."""
        inputs = self.check(inputs, mask)
        n = len(jax.tree.leaves(inputs)[0])
        # A few samples don't need a whole batch.
        rows = min(check_count("batch_size", batch_size), 1 << (n - 1).bit_length())
        lengths = _lengths(inputs.mask) if isinstance(inputs, Tokens) else np.zeros(n)
        order = np.argsort(lengths, kind="stable")
        parts = []
        chunks = chunk_slices(n, rows)
        for chunk in track(chunks, progress=progress, label="batches"):
            part = jax.tree.map(lambda a, at=order[chunk]: a[at], inputs)
            if isinstance(part, Tokens):
                longest = max(_SHORTEST, int(lengths[order[chunk.stop - 1]]))
                width = min(1 << (longest - 1).bit_length(), part.ids.shape[1])
                part = Tokens(part.ids[:, :width], part.mask[:, :width])
            part = take_rows(part, slice(None), rows)
            parts.append(run(self.graphdef, self.params, part))
        stacked = np.concatenate([np.asarray(part) for part in parts])[:n]
        outputs = np.empty_like(stacked)
        outputs[order] = stacked
        return outputs

    def check(self, inputs: Any, mask: Any = None) -> Any:
        """Return inputs as the model takes them, `Tokens` or images, on the host.

        Raises:
            TypeError: If tokens are not integers.
            ValueError: If they don't fit the model.
        """
        if self.config.kind == "image":
            images = np.asarray(inputs, np.float32)
            shape = (self.config.side, self.config.side, self.config.channels)
            if images.shape[1:] != shape or not len(images):
                raise ValueError(
                    f"inputs must be images of shape {('n', *shape)}, n >= 1, got "
                    f"{images.shape}"
                )
            check_finite("inputs", images)
            return images
        if isinstance(inputs, Tokens):
            inputs, mask = inputs.ids, inputs.mask if mask is None else mask
        ids = np.asarray(inputs)
        most, vocab = self.config.length, self.config.vocab
        if ids.ndim != 2 or not len(ids) or not 1 <= ids.shape[1] <= most:
            raise ValueError(
                f"inputs must be tokens of shape [n, L], n >= 1, L from 1 to {most}, "
                f"got {ids.shape}"
            )
        if not np.issubdtype(ids.dtype, np.integer):
            raise TypeError(f"inputs must hold tokens as integers, got {ids.dtype}")
        if ids.min() < 0 or ids.max() >= vocab:
            raise ValueError(
                f"inputs must lie in [0, {vocab}), the tokens of the model, got values "
                f"from {ids.min()} to {ids.max()}: is it this model's tokenizer?"
            )
        mask = np.ones(ids.shape, bool) if mask is None else np.asarray(mask)
        check_same_length("inputs", ids, "mask", mask)
        if mask.shape != ids.shape or mask.dtype != bool:
            raise ValueError(
                f"mask must be bool of shape {ids.shape}, got {mask.dtype} of shape "
                f"{mask.shape}"
            )
        return Tokens(ids.astype(np.int32), mask)


def _lengths(mask: np.ndarray) -> np.ndarray:
    """Return the lengths of texts, `[n]`: the index of their last token, plus one."""
    return mask.shape[1] - np.argmax(mask[:, ::-1], axis=1) * mask.any(1)


@functools.partial(jax.jit, static_argnames="graphdef")
def _logits(graphdef: nnx.GraphDef[Any], params: Params, inputs: Any) -> jax.Array:
    return nnx.merge(graphdef, params)(inputs)


@functools.partial(jax.jit, static_argnames=("graphdef", "read", "layers"))
def apply_features(
    graphdef: nnx.GraphDef[Any],
    params: Params,
    inputs: Any,
    *,
    read: Read,
    layers: tuple[int, ...] | None = None,
) -> jax.Array:
    """Return the features of one batch: `Target.features` without checks."""
    encoder = nnx.merge(graphdef, params).encoder
    mask = inputs.mask if isinstance(inputs, Tokens) else None
    if layers is None:
        return reduce_rows(encoder(inputs), mask, read=read)
    x = encoder.embed(inputs.ids if isinstance(inputs, Tokens) else inputs, mask)
    pooled = [reduce_rows(x, mask, read=read)]
    for layer in encoder.layers:
        x = layer(x, mask)
        pooled.append(reduce_rows(x, mask, read=read))
    return jnp.concatenate([pooled[i] for i in layers], axis=-1)
