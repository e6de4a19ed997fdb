"""No secret in files, logs or errors, and none in what the other party receives."""

import struct
import sys

import numpy as np
import pytest
from parties import both, needs_spu
from processes import ROLES, Role, Session, running
from scipy import stats
from sessions import KEEPS
from spu_parties import BITS, play
from waits import PATIENCE, until

pytestmark = [pytest.mark.mpc, pytest.mark.multihost, pytest.mark.slow]
ENGINES = [
    pytest.param("spu-cheetah", marks=needs_spu),
    pytest.param("spu-aby3", marks=needs_spu),
    "crypten",
]
LEAST = 1e-6
"""Of a p-value: by chance one run in some 100,000 is below it in any of the tests."""


def forms(values):
    """Return byte strings, of 8 bytes or more, as which values may stand somewhere."""
    values = np.asarray(values, np.float64).ravel()
    values, found = values[np.abs(values) > 1e-3], set()  # zeros stand everywhere
    for kind in ("<f4", ">f4"):
        whole = values.astype(kind).tobytes()
        found |= {whole[i : i + 8] for i in range(0, len(whole) - 7, 4)}
    for value in values[np.abs(values) > 0.25]:
        found |= {struct.pack("<d", value), struct.pack(">d", value)}
        found.add(struct.pack("<d", float(np.float32(value))))
        for bits in range(8, 31):
            ring = round(value * 2**bits)
            if abs(ring) >= 2**17:  # smaller ones are lengths and counts as well
                found |= {struct.pack("<q", ring), struct.pack(">q", ring)}
        for text in (repr(float(value)), repr(float(np.float32(value))), str(value)):
            found.add(text[:10].encode())
        found.add(str(np.float32(value))[:10].encode())
    return {each for each in found if len(each) >= 8}


def hits(needles, content):
    return [needle for needle in needles if needle in content]


def secrets_of(files):
    """Return the forms of each owner's values, and the files that may hold them."""
    from mpc_bridge._export import read_manifest, read_weights

    weights, samples = [], [np.load(files / f"x{i}.npy") for i in range(2)]
    for i in range(2):
        folder = files / f"probe{i}"
        weights += read_weights(folder, read_manifest(folder)).values()
    return forms(np.concatenate([w.ravel() for w in weights])), forms(
        np.concatenate([x.ravel() for x in samples])
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_no_secret_is_written_or_said(files, tmp_path, engine):
    """All that both leave when they are killed, and at the end."""
    weights, samples = secrets_of(files)
    # What is looked for is found where it stands: the search can fail.
    assert len(hits(samples, (files / "x0.npy").read_bytes())) > 50
    stored = (files / "probe0" / "weights.safetensors").read_bytes()
    assert len(hits(weights, stored)) > 5
    largest = float(np.load(files / "x0.npy").max())
    for kind, plain in (("<d", largest), ("<q", round(largest * 2**18))):
        assert hits(samples, b"shares" + struct.pack(kind, plain) + b"more")
    assert hits(samples, f"x must be at most 2, got {largest}".encode())
    session = Session(files, tmp_path, engine, timeout=PATIENCE)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    start = session.start

    def watched(rank, *options):
        command = start(rank, *options)
        command.close()
        return Role(command.process.args, TMPDIR=str(temporary))

    session.start = watched
    looked, said = 0, []
    for last in (False, True):
        with running(session) as roles:
            until(
                lambda last=last: last or session.entries(1) >= 5,
                lambda role=roles[1]: f"five entries: {role.said}",
                alive=lambda role=roles[1], last=last: last or role.status is None,
            )
            if not last:
                for role in roles:
                    role.process.kill()
            for role in roles:
                assert role.wait()[0] == (0 if last else -9), role.said
            said += [role.said for role in roles]
        entries = [*tmp_path.rglob("*.entry")]
        assert len(entries) >= 8 or last
        for path in (path for path in tmp_path.rglob("*") if path.is_file()):
            content = path.read_bytes()
            looked += len(content)
            assert not hits(weights | samples, content), path
    assert looked > 10_000
    assert not hits(weights | samples, "".join(said).encode())


def uniform(data):
    """Return the p-value of bytes that are as often each, by a chi-squared test."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    return stats.chisquare(counts).pvalue


def shares_on_spu(engine, value):
    """Return this party's shares of a sum to which both have contributed."""
    from test_spu_engines import Sum

    from mpc_bridge._framing import unpack
    from mpc_bridge._ledger import Ledger
    from mpc_bridge.engines import Unseen

    half = np.full(4096, value)
    secrets = [
        engine.share(rank, half if engine.rank == rank else Unseen(half.shape))[0]
        for rank in range(2)
    ]
    # A sum of private arrays only may stay open to their owners: a product does not.
    secret = Ledger(engine).run(Sum(), *secrets)
    _, *chunks = unpack(unpack(engine.dump(secret))[1])
    return b"".join(chunks)


def shares_on_crypten(rank, value):
    import torch

    import mpc_bridge

    crypten = mpc_bridge.import_crypten()
    secret = crypten.cryptensor(torch.full((4096,), value, dtype=torch.double), src=0)
    return secret.share.numpy().tobytes()


@pytest.mark.parametrize("engine", ENGINES)
def test_shares_are_uniform_whatever_they_hide(engine):
    assert uniform(bytes(8 * 4096)) < LEAST
    for value in (0.0, 1.0, -3.5):
        if engine == "crypten":
            found = both(shares_on_crypten, value)
        else:
            found = play(engine, shares_on_spu, value, bits=BITS)
        for share in found:
            assert len(share) >= 8 * 4096
            assert uniform(share) > LEAST


RECORDING = """
import os, sys
from mpc_bridge.engines.spu import _tunnel
pump = _tunnel._pump

class Reader:
    def __init__(self, reader, out):
        self.reader, self.out = reader, out
    async def read(self, size):
        data = await self.reader.read(size)
        self.out.write(data)
        self.out.flush()
        return data

async def noted(reader, writer, count, rank):
    to_peer = writer.get_extra_info("sslcontext") is not None
    name = f"{{{folder!r}}}/{{'sent' if to_peer else 'received'}}-{{rank}}"
    with open(name, "ab") as out:
        await pump(Reader(reader, out), writer, count, rank)

_tunnel._pump = noted
from mpc_bridge.__main__ import main
status = main(sys.argv[1:])
sys.stderr.flush()
os._exit(status)
"""


def received_by(files, folder, engine, rank, factor):
    """Return what a party receives inside TLS, and the results of all parties.

    Args:
        files: Of the fixture.
        folder: For this run.
        engine: Its name.
        rank: Of the party.
        factor: By which the other party's secret is multiplied, which leaves the order
            of the scores, and so everything that is opened, as it is.
    """
    from jaxsel.proxy import Proxy, save_proxy
    from mpc_bridge import Result
    from mpc_bridge._config import DataOwner, Inputs, ModelOwner, PhaseConfig
    from mpc_bridge._export import read_manifest, read_weights

    folder.mkdir()
    source = files / "probe1"
    manifest = read_manifest(source)
    arrays, x = read_weights(source, manifest), np.load(files / "x1.npy")
    arrays = {k: 0 * v if k.endswith("bias") else v for k, v in arrays.items()}
    if rank == 1:
        arrays = {name: factor * value for name, value in arrays.items()}
    else:
        x = (factor * x).astype(np.float32)
    save_proxy(Proxy.from_arrays(manifest, arrays), folder / "probe")
    np.save(folder / "x.npy", x)
    phase = PhaseConfig(manifest=source / "manifest.json", keep=KEEPS[1], batch_size=60)
    session = Session(
        files,
        folder,
        engine,
        timeout=PATIENCE,
        phases=(phase,),
        model_owner=ModelOwner(weights=(folder / "probe",), output=folder),
        data_owner=DataOwner(inputs=(Inputs(x=folder / "x.npy"),), output=folder),
    )
    start = session.start
    program = RECORDING.format(folder=str(folder))
    command = [sys.executable, "-c", program, ROLES[rank], "--config"]
    session.start = lambda other, *options: (
        Role([*command, session.paths[rank]]) if other == rank else start(other)
    )
    with running(session) as roles:
        for role in roles:
            assert role.wait()[0] == 0, role.said
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("received-*")))
    return data, [Result.read(session.outputs[each]) for each in session.ranks]


@needs_spu
@pytest.mark.parametrize("engine", ["spu-cheetah", "spu-aby3"])
@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_party_receives_is_alike_for_other_secrets(
    files, tmp_path, engine, rank
):
    """As often each byte, as between two runs with the same secret, and none of it.

    Two runs differ by more than chance: framing repeats what is drawn once.
    """
    _, samples = secrets_of(files)
    weights, _ = secrets_of(files)
    factors, streams, shown, sent = (1.0, 1.0, 0.25, 0.25), [], [], []
    for i, factor in enumerate(factors):
        data, results = received_by(files, tmp_path / str(i), engine, rank, factor)
        assert not hits(weights if rank == 1 else samples, data)
        streams.append(np.bincount(np.frombuffer(data, np.uint8), minlength=256))
        shown.append((results[rank].rows, results[rank].openings))
        sent.append(sum(result.total().sent for result in results))
    assert shown.count(shown[0]) == 4
    # ABY3 draws which party sends what: all together send as much each time. Cheetah's
    # ciphertexts are compressed.
    assert max(sent) <= (1.005 if engine == "spu-cheetah" else 1) * min(sent)
    assert min(counts.sum() for counts in streams) > 20_000
    found = {True: [], False: []}
    for i in range(4):
        for j in range(i):
            pair = np.array([streams[i], streams[j]])
            same = factors[i] == factors[j]
            found[same].append(stats.chi2_contingency(pair).statistic)
    assert np.mean(found[False]) < 2 * max(256, *found[True])
