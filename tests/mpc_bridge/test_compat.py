"""CrypTen imports on the installed PyTorch, and two parties compute with it."""

import multiprocessing
import os
import socket
import sys

import numpy as np
import pytest

import mpc_bridge

pytestmark = pytest.mark.mpc


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def party(rank, port, queue):
    """Multiply two secret matrices and compare two secret vectors."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RENDEZVOUS": f"tcp://127.0.0.1:{port}",
        "DISTRIBUTED_BACKEND": "gloo",
    }
    import torch

    crypten = mpc_bridge.import_crypten()
    torch.set_num_threads(1)
    crypten.init()
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.normal(size=(4, 4))) for _ in range(2))
    x, y = crypten.cryptensor(a, src=0), crypten.cryptensor(b, src=1)
    product = x.matmul(y).get_plain_text()
    larger = (x > y).get_plain_text()
    queue.put((rank, product.numpy(), (a @ b).numpy(), larger.numpy(), (a > b).numpy()))
    crypten.uninit()


@pytest.mark.multihost
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_parties_multiply_and_compare():
    context = multiprocessing.get_context("spawn")
    queue, port = context.Queue(), free_port()
    parties = [
        context.Process(target=party, args=(rank, port, queue)) for rank in range(2)
    ]
    for process in parties:
        process.start()
    results = sorted((queue.get(timeout=120) for _ in parties), key=lambda r: r[0])
    for process in parties:
        process.join(timeout=60)
        assert process.exitcode == 0
    for _, product, expected, larger, expected_larger in results:
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
