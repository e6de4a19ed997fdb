"""A session's files and a run of it, made once."""

import numpy as np
import pytest
from sessions import WIDTHS, N, config_of


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Two exported probes, the samples for each, and the configuration of a run."""
    from jaxsel.proxy import Proxy, array_shapes, probe_manifest, with_bounds
    from mpc_bridge._export import export

    folder = tmp_path_factory.mktemp("session")
    rng = np.random.default_rng(0)
    for i, (width, classes) in enumerate(zip(WIDTHS, (3, 2), strict=True)):
        x = rng.normal(size=(N, width)).astype(np.float32)
        secure = None if classes == 2 else "exact"
        manifest = probe_manifest(width=width, classes=classes, secure=secure)
        arrays = {
            name: 0.7 * rng.normal(size=shape)
            for name, shape in array_shapes(manifest).items()
        }
        arrays["offset"] = np.zeros(classes)  # no prior
        proxy = with_bounds(Proxy.from_arrays(manifest, arrays), x)
        export(proxy, folder / f"probe{i}")
        np.save(folder / f"x{i}.npy", x)
    return folder


@pytest.fixture(scope="session")
def local(files):
    """A whole run with the third party: the results of both parties."""
    from mpc_bridge._local import run_local
    from mpc_bridge._result import Result

    config = config_of(files, "local")
    result = run_local(config, notice=False)
    assert result == Result.read(files / "local" / "model")
    return result, Result.read(files / "local" / "data")
