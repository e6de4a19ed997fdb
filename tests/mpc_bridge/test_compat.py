"""CrypTen imports on the installed PyTorch, and two parties compute with it."""

import subprocess
import sys

import numpy as np
import pytest
from parties import both, needs_spu
from waits import PATIENCE

import mpc_bridge

pytestmark = pytest.mark.mpc


def multiply_and_compare(rank, seed):
    """Return secret results beside clear ones: a product, and a comparison."""
    import torch

    crypten = mpc_bridge.import_crypten()
    rng = np.random.default_rng(seed)
    a, b = (torch.tensor(rng.normal(size=(4, 4))) for _ in range(2))
    x, y = crypten.cryptensor(a, src=0), crypten.cryptensor(b, src=1)
    found = x.matmul(y).get_plain_text(), (x > y).get_plain_text()
    return [t.numpy().tolist() for t in (*found, a @ b, a > b)]


def test_two_parties_multiply_and_compare():
    for product, larger, expected, expected_larger in both(multiply_and_compare, 0):
        np.testing.assert_allclose(product, expected, atol=1e-3)  # 16 fraction bits
        np.testing.assert_array_equal(larger, expected_larger)


def test_other_versions_are_refused(monkeypatch):
    crypten = mpc_bridge.import_crypten()
    monkeypatch.setattr(crypten, "__version__", "0.5.0")
    with pytest.raises(ImportError, match=r"knows CrypTen 0\.4\.1, got 0\.5\.0: pip"):
        mpc_bridge.import_crypten()


def test_a_missing_crypten_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "crypten", None)
    with pytest.raises(ImportError, match=r"--no-deps crypten==0\.4\.1 \(with torch"):
        mpc_bridge.import_crypten()


def without_torch(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['torch'] = None; {code}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.stderr


@pytest.mark.slow
def test_a_missing_torch_says_how_to_install_it():
    said = without_torch(
        "from mpc_bridge.engines import engine_of; engine_of('crypten')"
    )
    assert "ImportError: the secure phase needs PyTorch: pip install 'jaxsel" in said


@pytest.mark.slow
@needs_spu
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3", "published"])
def test_other_engines_need_no_torch(engine):
    code = f"""
import mpc_bridge._party, mpc_bridge._estimate, mpc_bridge._selection
mpc_bridge.engines.engine_of({engine!r}).versions()
mpc_bridge.score_pool, mpc_bridge._scoring.share_proxy, mpc_bridge.run_local
assert 'crypten' not in sys.modules"""
    assert without_torch(code) == ""
