"""Two parties that run CrypTen's primitives and count; free of JAX, to start fast."""

import multiprocessing
import os
import socket

import numpy as np

import mpc_bridge

N = -1


def both_parties(*arguments):
    """Return what `_party` reports, after checking that both parties count the same."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    parties = [
        context.Process(target=_party, args=(rank, port, queue, *arguments))
        for rank in range(2)
    ]
    for process in parties:
        process.start()
    results = dict(queue.get(timeout=240) for _ in parties)
    for process in parties:
        process.join(timeout=60)
        assert process.exitcode == 0
    np.testing.assert_equal(results[0], results[1])
    return results[0]


def _party(rank, port, queue, calls, samples):
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
    from crypten.config import cfg

    cfg.communicator.verbose = True
    communicator = crypten.communicator.get()

    def count(function, *arguments):
        communicator.reset_communication_stats()
        result = function(*arguments)
        stats = communicator.get_communication_stats()
        return result, (stats["rounds"], stats["bytes"])

    def secret(shape):
        sizes = [samples if axis == N else axis for axis in shape]
        return crypten.cryptensor(torch.rand(sizes) + 0.5, src=0)

    def reciprocal(x):
        with cfg.temp_override({"functions.reciprocal_all_pos": True}):
            return x.reciprocal()

    primitives = {
        "matmul": lambda x, y: x.matmul(y),
        "mul": lambda x, y: x * y,
        "square": lambda x: x.square(),
        "relu": lambda x: x.relu(),
        "gelu": lambda x: x * (1.5958 * (x + 0.044715 * (x.square() * x))).sigmoid(),
        "abs": lambda x: x.abs(),
        "exp": lambda x: x.exp(),
        "reciprocal": reciprocal,
        "inv_sqrt": lambda x: x.inv_sqrt(),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "max": lambda x: x.max(-1, keepdim=True),
        # Not in any schedule of a forward pass:
        "compare": lambda x: x > 1,
        "log": lambda x: x.log(),
        "sigmoid": lambda x: x.sigmoid(),
        "open": lambda x: x.get_plain_text(),
        "truncate": lambda x: x / 7,
        "share": lambda x: crypten.cryptensor(torch.zeros(x.size()), src=1),
    }
    counts = {}
    for kind, shapes, degree in calls:
        operands = [secret(shape) for shape in shapes]
        function = primitives.get(kind)
        if kind == "powers":
            function = lambda x, degree=degree: x.polynomial([0.5] * degree)
        counts[kind, shapes, degree] = count(function, *operands)[1]
    queue.put((rank, counts))
    crypten.uninit()
