"""A new engine: a proxy's secure forward pass in fixed point, in the clear.

It tells within a second what a ring's fraction bits cost a proxy's scores. An engine
needs operands, and a function for each kind of operation that the proxy asks for.
"""

from typing import Any

import numpy as np

from jaxsel import proxy


class Fixed(np.ndarray):
    """An array, with the methods of operands that NumPy spells otherwise."""

    def sum(self, axis: int, keepdim: bool = False) -> Any:  # pyright: ignore
        return np.add.reduce(self, axis, keepdims=keepdim)

    def transpose(self, first: int, second: int) -> Any:  # pyright: ignore
        return self.swapaxes(first, second)

    def unsqueeze(self, axis: int) -> Any:
        return np.expand_dims(self, axis)


KINDS = {
    "matmul": np.matmul,
    "mul": np.multiply,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
}


def run(source: proxy.Proxy, x: Any, bits: int) -> tuple[np.ndarray, int]:
    """Return the scores `[n]` of rows `[n, L, H]`, and how many operations it took."""
    done = []

    def code(x: Any) -> Any:
        return (np.round(np.asarray(x, float) * 2**bits) / 2**bits).view(Fixed)

    def execute(call: proxy.Call) -> Any:
        done.append(call.name)
        return code(KINDS[call.kind](*map(np.asarray, call.operands)))

    operands = proxy.fold(source.manifest, source.arrays()).items()
    weights = {name: code(array) for name, array in operands}
    inputs = proxy.SharedInputs(code(x))
    cat = lambda parts: np.concatenate(parts, -1).view(Fixed)
    steps = proxy.secure_steps(source.manifest, weights, inputs, cat=cat)
    return np.asarray(proxy.run_steps(steps, execute)), len(done)


def random_proxy(attention: str) -> proxy.Proxy:
    """Return a proxy with this attention, for samples of 6 rows of 8 columns."""
    spec = proxy.Spec(1, 2, attention=attention, norm="none", read="mean")
    sizes: Any = {"layers": 1, "heads": 2, "head_width": 4, "hidden": 8, "length": 6}
    manifest = proxy.manifest(spec, **sizes, n_classes=2, kind="patches")
    draw, shapes = np.random.default_rng(0).normal, proxy.array_shapes(manifest)
    arrays = {name: draw(0, 0.3, shape) for name, shape in shapes.items()}
    return proxy.Proxy.from_arrays(manifest, arrays)


def main() -> dict[int, float]:
    """Compare scores with JAX's, operations with rounds; return errors by bits."""
    source, x = random_proxy("linear"), np.random.default_rng(1).normal(size=(5, 6, 8))
    expected, errors = source.scores(source.logits(x)), {}
    for bits in (8, 16, 24):
        scores, operations = run(source, x, bits)
        error = np.abs(scores - expected).max() / np.abs(expected).max()
        errors[bits] = float(error)
        assert errors[bits] < max(4 * 2.0**-bits, 1e-6)
        # All are products and squares here, and each of these opens once.
        assert operations == proxy.cost(source.manifest, len(x)).rounds_per_batch
    return errors


if __name__ == "__main__":
    print(main())
