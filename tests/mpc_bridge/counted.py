"""What a party counts of CrypTen's primitives; imported by the parties."""

N = -1


def count_calls(rank, calls, samples):
    """Return rounds and bytes of each call: kind, shapes of the operands, degree."""
    import torch
    from crypten.config import cfg

    import mpc_bridge
    from mpc_bridge.engines.crypten._primitives import SECRET, powers

    crypten = mpc_bridge.import_crypten()
    cfg.communicator.verbose = True
    communicator = crypten.communicator.get()
    kinds = {
        **SECRET,
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
        sizes = [[samples if axis == N else axis for axis in shape] for shape in shapes]
        secrets = [crypten.cryptensor(torch.rand(size) + 0.5, src=0) for size in sizes]
        communicator.reset_communication_stats()
        if kind == "powers":
            powers(secrets[0], degree)
        else:
            kinds[kind](*secrets)
        stats = communicator.get_communication_stats()
        counts[kind, shapes, degree] = stats["rounds"], stats["bytes"]
    return counts
