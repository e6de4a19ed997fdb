"""Write the files that the run.toml of each engine names, of all parties, to try them.

    python examples/engines/prepare.py digits
    python -m mpc_bridge local --config digits/spu-cheetah.toml

A probe of eights and nines, and a layer on the eight rows of their images: its weights
are random, so that its choice means nothing.
"""

import shutil
import sys
from pathlib import Path

import jax
import numpy as np

import mpc_bridge
from jaxsel import data, proxy

KEEPS = 100, 35


def main(folder: str = "digits") -> tuple[np.ndarray, np.ndarray]:
    """Write the files; return scores by the probe and the layer in the clear, `[n]`."""
    digits = data.load("digits", split="all")
    rows = np.flatnonzero(np.isin(digits.y, [8, 9]))
    images = (digits.x[rows].reshape(-1, 8, 8) / digits.x.max()).astype(np.float32)
    x, labels = images.reshape(len(images), -1), (digits.y[rows] == 9).astype(int)
    probe = proxy.fit_probe(x[:35], labels[:35], loss="labels", l2=0.01)
    manifest = proxy.probe_manifest(width=64, n_classes=2)
    to = Path(folder)
    scores = (
        write(proxy.Proxy.of_probe(manifest, probe), x, to, "probe", "features.npy"),
        write(random_layer(), images, to, "layer", "images.npy"),
    )
    for path in Path(__file__).parent.glob("*.toml"):
        shutil.copy(path, to)
    return scores


def random_layer() -> proxy.Proxy:
    """Return a proxy of one layer, for samples of eight rows of eight columns."""
    spec = proxy.Spec(1, 2, attention="quadratic", norm="polynomial")
    manifest = proxy.manifest(
        spec,
        layers=1,
        heads=2,
        head_width=4,
        hidden=8,
        length=8,
        n_classes=2,
        kind="patches",
    )
    keys = jax.random.split(jax.random.key(0), len(proxy.array_shapes(manifest)))
    shapes = proxy.array_shapes(manifest).items()
    return proxy.Proxy.from_arrays(
        manifest,
        {
            name: 0.3 * np.asarray(jax.random.normal(key, shape))
            for key, (name, shape) in zip(keys, shapes, strict=True)
        },
    )


def write(
    source: proxy.Proxy, x: np.ndarray, to: Path, name: str, inputs: str
) -> np.ndarray:
    """Write a proxy for the model owner, and samples for the data owner."""
    bounded = proxy.with_bounds(source, x)
    mpc_bridge.export(bounded, to / "model-owner" / name)
    public = to / "data-owner" / name
    public.mkdir(parents=True, exist_ok=True)
    # All that the model owner sends: who publishes the proxy sends the folder whole.
    shutil.copy(to / "model-owner" / name / "manifest.json", public)
    np.save(to / "data-owner" / inputs, x)
    return np.asarray(source.scores(source.logits(x)))


if __name__ == "__main__":
    main(*sys.argv[1:])
