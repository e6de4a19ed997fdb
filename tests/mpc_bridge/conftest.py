"""A session's files and a run of it, made once."""

import numpy as np
import pytest
from sessions import EXCLUDED, KEEPS, WIDTHS, N, border_of, config_of


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Two exported probes, and samples that no error within its bound chooses wrongly.

    Those to choose score higher than those to leave by twice the bound. Rows that are
    excluded, or left before, score as high as the chosen: only their absence keeps them
    out.
    """
    from jaxsel.proxy import Proxy, array_shapes, probe_manifest, with_bounds
    from mpc_bridge._export import export

    folder = tmp_path_factory.mktemp("session")
    rng = np.random.default_rng(0)
    left = np.setdiff1d(np.arange(N), EXCLUDED)
    for i, (width, n_classes) in enumerate(zip(WIDTHS, (3, 2), strict=True)):
        secure = None if n_classes == 2 else "exact"
        manifest = probe_manifest(width=width, n_classes=n_classes, secure=secure)
        arrays = {
            name: 0.7 * rng.normal(size=shape)
            for name, shape in array_shapes(manifest).items()
        }
        arrays["offset"] = np.zeros(n_classes)  # no prior
        proxy = Proxy.from_arrays(manifest, arrays)
        pool = rng.normal(size=(10 * N, width)).astype(np.float32)
        scores = np.asarray(proxy.scores(proxy.logits(pool)))
        border = border_of(manifest, scores)
        high = pool[scores > np.median(scores) + border / 2]
        low = pool[scores < np.median(scores) - border / 2]
        kept = np.sort(rng.choice(left, KEEPS[i], replace=False))
        others = np.setdiff1d(left, kept)
        x, left = high[:N], kept
        x[others] = low[: len(others)]
        export(with_bounds(proxy, x), folder / f"probe{i}")
        np.save(folder / f"x{i}.npy", x)
    return folder


@pytest.fixture(scope="session")
def local(files):
    """A whole run with the third party: the results of both parties."""
    from mpc_bridge._local import run_local
    from mpc_bridge._result import Result

    config = config_of(files, "local", measure=True)
    result = run_local(config, notice=False)
    assert result == Result.read(files / "local" / "model")
    return result, Result.read(files / "local" / "data")
