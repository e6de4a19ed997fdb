"""Names and shapes of a proxy's arrays: they follow from its manifest."""

from __future__ import annotations

import itertools

from ._manifest import Emulator, Layer, Manifest
from .families import attention_of, norm_of, score_of
from .families._place import Shapes


def array_shapes(manifest: Manifest) -> Shapes:
    """Return the shape of every array of a proxy, by the names of `Proxy.arrays`.

    Args:
        manifest: The proxy.
    """
    inputs, head = manifest.inputs, manifest.head
    shapes: Shapes = {}
    if inputs.embed == "onehot":
        table, places = (inputs.vocab or 0, inputs.width), (inputs.length, inputs.width)
        shapes |= {"inputs.embed.weight": table, "inputs.embed.bias": places}
        if inputs.norm is not None:
            shapes |= _under("inputs.norm", _norm(inputs.norm, inputs.width))
    for i, layer in enumerate(manifest.layers):
        layer_shapes = _layer(layer, inputs.width, manifest.rows_of(i), inputs.length)
        shapes |= _under(f"layers.{i}", layer_shapes)
    if manifest.final_norm is not None:
        shapes |= _under("final_norm", _norm(manifest.final_norm, inputs.width))
    hidden = (head.width,) if head.width else ()
    sizes = (inputs.width, *hidden, head.n_classes)
    for i, pair in enumerate(itertools.pairwise(sizes)):
        shapes |= _linear(f"head.{i}", *pair)
    secure = score_of(manifest.score.secure)
    shapes |= _under("score", secure.shapes(n_classes=head.n_classes))
    return {**shapes, "offset": (head.n_classes,)}


def _layer(layer: Layer, hidden: int, rows: int, length: int) -> Shapes:
    inner = layer.heads * layer.head_width
    shapes = _linear("out", inner, hidden)
    for name in ("query", "key", "value"):
        shapes |= _linear(name, hidden, inner)
    attention = _attention(layer.attention, layer.heads, rows, length)
    norm = _under("norm", _norm(layer.norm, hidden))
    shapes |= _under("attention", attention) | norm
    if layer.ffn is None:
        return shapes
    up = _linear("up", hidden, layer.ffn.width)
    down = _linear("down", layer.ffn.width, hidden)
    return shapes | _under("ffn", up | down | norm)


def _attention(entry: Emulator, heads: int, rows: int, length: int) -> Shapes:
    family = attention_of(entry)
    return family.shapes(heads=heads, rows=rows, length=length)


def _norm(entry: Emulator, hidden: int) -> Shapes:
    return {
        "gamma": (hidden,),
        "beta": (hidden,),
        **_under("emulator", norm_of(entry).shapes()),
    }


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def _under(place: str, shapes: Shapes) -> Shapes:
    return {f"{place}.{name}": shape for name, shape in shapes.items()}
