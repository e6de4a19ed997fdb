"""A proxy: a manifest with its parameters, run in the clear, and as named arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.checks import check_count, check_finite
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel._inputs.show import brief

from ._forward import Params, proxy_logits, proxy_scores
from ._manifest import Manifest
from ._probe import Probe
from ._shapes import array_shapes

_Tree: TypeAlias = (
    "jax.Array | Probe | tuple[_Tree, ...] | list[_Tree] | dict[str, _Tree]"
)
_LINEAR = ("query", "key", "value", "out", "up", "down")


@brief
@dataclasses.dataclass(frozen=True, eq=False)
class Proxy:
    """A proxy that is ready to rank samples.

    Attributes:
        manifest: The architecture: public.
        params: The parameters: the model owner's secret. See `proxy_logits`.
    """

    manifest: Manifest
    params: Params

    def logits(
        self,
        x: npt.ArrayLike | jax.Array,
        mask: npt.ArrayLike | jax.Array | None = None,
        *,
        batch_size: int = 256,
    ) -> np.ndarray:
        """Return the logits of n samples in the clear, `[n, C]`.

        Args:
            x: Embedded rows `[n, L, H]`; token ids `[n, L]` for one-hot words, or
                features `[n, d]` for a probe.
            mask: `[n, L]`, which rows are no padding; all if None.
            batch_size: Samples of one forward pass.

        Raises:
            ValueError: If a shape is not that of the manifest, or a value not finite.
        """
        inputs = self.manifest.inputs
        onehot = inputs.embed == "onehot"
        x = np.asarray(x, np.int32 if onehot else np.float32)
        row = () if onehot else (inputs.width,)
        shape = row if inputs.kind == "features" else (inputs.length, *row)
        if x.shape[1:] != shape or not len(x):
            raise ValueError(f"x must have shape {('n', *shape)}, got {x.shape}")
        check_finite("x", x)
        if onehot and not (x.min() >= 0 and x.max() < (inputs.vocab or 0)):
            raise ValueError(
                f"x must be token ids in [0, {inputs.vocab}), got {x.min()} to "
                f"{x.max()}"
            )
        shown = None if mask is None else np.asarray(mask, np.float32)
        if shown is not None and shown.shape != x.shape[:2]:
            raise ValueError(f"mask must have shape {x.shape[:2]}, got {shown.shape}")
        batch_size = check_count("batch_size", batch_size)
        # A power of two for few samples, so that few shapes are compiled.
        rows = min(batch_size, 1 << (len(x) - 1).bit_length())
        parts = [
            _logits(
                self.params, *take_rows((x, shown), chunk, rows), manifest=self.manifest
            )
            for chunk in chunk_slices(len(x), rows)
        ]
        return np.concatenate([np.asarray(part) for part in parts])[: len(x)]

    def scores(
        self, logits: npt.ArrayLike | jax.Array, *, finite: bool = True
    ) -> np.ndarray:
        """Return the numbers that samples are ranked by, `[n]`.

        Args:
            logits: Of the samples, `[n, C]`.
            finite: Whether scores that are not finite are refused.

        Raises:
            ValueError: If a score is not finite: the proxy overflows on that row.
        """
        scores = np.asarray(
            _scores(self.params, jnp.asarray(logits), manifest=self.manifest)
        )
        if finite:
            _check_overflow(scores)
        return scores

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the parameters by name, such as "layers.0.query.weight"."""
        return {name: np.asarray(value) for name, value in _named(self.params)}

    @staticmethod
    def of_probe(manifest: Manifest, probe: Probe) -> Proxy:
        """Return the proxy of a fitted probe, its score's emulator still to be fitted.

        Args:
            manifest: Its description, see `probe_manifest`.
            probe: The result of `fit_probe`.
        """
        offset = jnp.zeros(manifest.head.n_classes)
        params: Params = {"layers": [], "head": probe, "score": {}, "offset": offset}
        return Proxy(manifest, params)

    @staticmethod
    def from_arrays(manifest: Manifest, arrays: Mapping[str, npt.ArrayLike]) -> Proxy:
        """Return the proxy that has these `arrays`.

        Raises:
            ValueError: If an array is missing, unknown or of another shape than the
                manifest's; it names the array.
        """
        named = {name: np.asarray(value) for name, value in arrays.items()}
        shapes = array_shapes(manifest)
        for name, shape in shapes.items():
            if name not in named:
                raise ValueError(
                    f"arrays must have {name!r} of shape {shape}, got {sorted(named)}"
                )
            if named[name].shape != shape:
                raise ValueError(
                    f"arrays[{name!r}] must have shape {shape}, got {named[name].shape}"
                )
        unknown = sorted(set(named) - set(shapes))
        if unknown:
            raise ValueError(
                f"arrays must have the manifest's names only, {sorted(shapes)}, got "
                f"also {unknown}"
            )
        params = _rebuilt(manifest, named)
        return Proxy(manifest, tree_map(lambda leaf: jnp.asarray(leaf), params))


def _check_overflow(scores: np.ndarray) -> None:
    """Refuse scores `[n]` that are not finite."""
    wild = np.flatnonzero(~np.isfinite(scores))
    if wild.size:
        raise ValueError(
            f"scores must be finite, got {scores[wild[0]]} for row {wild[0]}, the "
            f"first of {wild.size:,} of {len(scores):,}: the proxy overflows on them. "
            "Leave out rows unlike those that it was trained on, or make the proxy of "
            "fewer layers, or of an exact norm"
        )


_logits = jit(static_argnames="manifest")(proxy_logits)
_scores = jit(static_argnames="manifest")(proxy_scores)


def _named(tree: _Tree, prefix: str = "") -> list[tuple[str, jax.Array]]:
    if isinstance(tree, Probe):
        tree = list(zip(tree.weights, tree.biases, strict=True))
    if isinstance(tree, tuple):
        tree = dict(zip(("weight", "bias"), tree, strict=True))
    if isinstance(tree, list):
        tree = {str(place): part for place, part in enumerate(tree)}
    if not isinstance(tree, dict):
        return [(prefix[:-1], tree)]
    return [
        pair for name, part in tree.items() for pair in _named(part, f"{prefix}{name}.")
    ]


def _rebuilt(manifest: Manifest, arrays: Mapping[str, np.ndarray]) -> Params:
    """Put the arrays of a manifest in their places."""

    def linear(place: str) -> tuple[Any, Any]:
        return arrays[f"{place}.weight"], arrays[f"{place}.bias"]

    def emulator(place: str) -> Params:
        names = [name for name in arrays if name.startswith(f"{place}.")]
        return {name.removeprefix(f"{place}."): arrays[name] for name in names}

    def norm(place: str) -> Params:
        parts = {name: arrays[f"{place}.{name}"] for name in ("gamma", "beta")}
        return {**parts, "emulator": emulator(f"{place}.emulator")}

    layers: list[Params] = []
    for i, layer in enumerate(manifest.layers):
        start = f"layers.{i}"
        layer_params: Params = {name: linear(f"{start}.{name}") for name in _LINEAR[:4]}
        layer_params["attention"] = emulator(f"{start}.attention")
        layer_params["norm"] = norm(f"{start}.norm")
        if layer.ffn is not None:
            ffn: Params = {name: linear(f"{start}.ffn.{name}") for name in _LINEAR[4:]}
            layer_params["ffn"] = {**ffn, "norm": norm(f"{start}.ffn.norm")}
        layers.append(layer_params)
    params: Params = {"layers": layers, "offset": arrays["offset"]}
    if manifest.inputs.embed == "onehot":
        embed = linear("inputs.embed")
        params["inputs"] = {"embed": embed, "norm": norm("inputs.norm")}
    if manifest.final_norm is not None:
        params["final_norm"] = norm("final_norm")
    depth = 2 if manifest.head.width else 1
    pairs = [linear(f"head.{i}") for i in range(depth)]
    params["head"] = Probe(*(tuple(part) for part in zip(*pairs, strict=True)))
    params["score"] = emulator("score")
    return params
