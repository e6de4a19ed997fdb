"""Openings: what a party has not committed to is refused, and its sender is named."""

import queue
import struct
import sys
import threading

import numpy as np
import pytest
from parties import needs_spu
from processes import ROLES, Role, Session, running
from spu_parties import play
from waits import PATIENCE

from mpc_bridge import Ledger
from mpc_bridge._framing import pack, unpack
from mpc_bridge._handshake import SessionError

pytestmark = [pytest.mark.mpc, needs_spu]
PROTOCOLS = {"CHEETAH": 2, "ABY3": 3}
DRAWN = (b"the model owner's", b"the data owner's", b"the helper's")


def shares_of(protocol, values, ring=64):
    """Return the shares that SPU makes of an array, by rank."""
    from mpc_bridge.engines.spu import import_spu

    spu = import_spu()
    config = spu.RuntimeConfig()
    config.protocol = getattr(spu.ProtocolKind, protocol)
    config.field = getattr(spu.FieldType, f"FM{ring}")
    config.fxp_fraction_bits = 18
    io = spu.IoWrapper(PROTOCOLS[protocol], config)
    return io, io.MakeShares(values, spu.Visibility.VIS_SECRET, -1)


class Wire:
    """Messages of parties in one process; who waits in vain gets SPU's error."""

    def __init__(self, parties, patience=PATIENCE):
        ranks = range(parties)
        self.parties, self.patience = parties, patience
        self.lines = {(i, j): queue.Queue() for i in ranks for j in ranks}

    def openings(self, rank, drawn=DRAWN):
        from mpc_bridge.engines.spu._opening import Openings

        return Openings(
            rank,
            drawn[: self.parties],
            lambda to, message: self.lines[rank, to].put(message),
            lambda sender: self.receive(rank, sender),
        )

    def receive(self, rank, sender):
        try:
            return self.lines[sender, rank].get(timeout=self.patience)
        except queue.Empty:
            raise RuntimeError("what: \n\tGet data timeout\nstacktrace: #0") from None


def together(parties, function, **options):
    """Call `function(rank, wire)` for each party at once; errors are results."""
    wire, found = Wire(parties, **options), [None] * parties

    def call(rank):
        try:
            found[rank] = function(rank, wire)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=call, args=(i,)) for i in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("ring", [64, 128])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_parties_see_what_was_shared(protocol, ring):
    rng = np.random.default_rng(0)
    arrays = (rng.normal(size=7).round(2), rng.integers(0, 2, 19) > 0, np.zeros((2, 3)))
    for values in arrays:
        io, shares = shares_of(protocol, values, ring)

        def party(rank, wire, shares=shares, values=values):
            return wire.openings(rank).open(shares[rank], values.size)

        for found in together(PROTOCOLS[protocol], party):
            opened = np.asarray(io.Reconstruct(found))
            assert opened.dtype == values.dtype
            np.testing.assert_allclose(opened, values, atol=2**-17)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_but_the_bit_of_a_boolean_is_sent(protocol):
    """Whatever stands above it in the words."""
    from mpc_bridge.engines.spu._opening import _Words
    from mpc_bridge.engines.spu._shares import bit_share, hidden

    values = np.arange(19) % 3 == 0
    io, shares = shares_of(protocol, values)
    if protocol == "CHEETAH":  # SPU shares booleans as numbers
        message, own = hidden(values)
        parts = own, np.frombuffer(message, np.uint8)
        shares = [bit_share(io, part, values.shape) for part in parts]
    sizes = []

    def party(rank, wire):
        words = _Words(shares[rank], values.size)
        words._words = words._words | 0x54
        share = words.share([])
        share.share_chunks = [words._heads[0] + words._words.tobytes()]
        openings = wire.openings(rank)
        send = openings._send
        openings._send = lambda to, m: (sizes.append(len(m)), send(to, m))
        return openings.open(share, values.size)

    for found in together(PROTOCOLS[protocol], party):
        np.testing.assert_array_equal(io.Reconstruct(found), values)
    assert max(sizes) < 32 + 40 + 28 + 19


@pytest.mark.parametrize(
    ("engine", "values", "size"),
    [
        ("spu-cheetah", np.zeros(300), 2400),
        ("spu-aby3", np.zeros(300), 2400),
        ("spu-aby3", np.arange(300) > 7, 38),
        ("spu-aby3-128", np.zeros(300), 4800),
    ],
)
def test_an_opening_sends_what_is_counted(engine, values, size):
    from spu_parties import KINDS

    from jaxsel.proxy._cost._choosing import _opened

    kind, sent = KINDS[engine], []
    _, shares = shares_of(kind.protocol, values, kind.ring)

    def party(rank, wire):
        openings = wire.openings(rank)
        send = openings._send
        openings._send = lambda to, m: (sent.append(len(m)), send(to, m))
        return openings.open(shares[rank], values.size)

    together(kind.parties, party)
    counted = _opened(engine, 1, size)
    assert sum(sent) == pytest.approx(counted.total, abs=8 * len(sent))
    assert len(sent) == kind.parties * counted.rounds


def evil(kind, wire, share, n, wanted):
    """Play rank 1, which opens what it should not."""
    old = (b"of another session", DRAWN[1])
    openings = wire.openings(1, old if kind == "another session" else DRAWN)
    send, receive = openings._send, openings._receive
    if kind == "another session":
        return openings.open(share, n)
    if kind == "replayed":
        messages = []
        openings._send = lambda to, m: (messages.append(m), send(to, m))
        openings.open(share, n)  # as it should
        for message in messages:
            send(0, message)
            receive(0)
        return None
    if kind == "mirrored":
        for _ in range(2):
            send(0, receive(0))
        return None
    if kind == "waiting":  # for the other's share, before it commits to its own
        receive(0)
        receive(0)
        return None
    ring = (wanted * 2**18).astype(np.int64)
    if kind == "choosing":  # its share once it has seen the other's
        send(0, bytes(32))
        receive(0)
        _, meta, theirs = unpack(receive(0))
        ring -= np.frombuffer(theirs, np.int64)
    else:  # it commits to one share, and opens another
        openings._send = lambda to, m: send(to, m) if len(m) == 32 else None
        openings.open(share, n)
        meta = share.meta
    send(0, pack([bytes(32), meta, ring.tobytes()]))
    return None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("choosing", "opening 1 .* did not commit to"),
        ("changing", "opening 1 .* did not commit to"),
        ("mirrored", "opening 1 .* did not commit to"),
        ("another session", "opening 1 .* did not commit to"),
        ("replayed", "opening 2 .* did not commit to"),
        ("waiting", "opening 1, waiting for the data owner's commitment: Get data"),
    ],
)
def test_who_opens_last_can_not_choose_what_is_opened(kind, said):
    values = np.arange(5.0)
    _, shares = shares_of("CHEETAH", values)

    def party(rank, wire):
        if rank == 1:
            return evil(kind, wire, shares[1], 5, 100 + values)
        openings = wire.openings(0)
        for _ in range(2 if kind == "replayed" else 1):
            found = openings.open(shares[0], 5)
        return found

    patience = 0.3 if kind == "waiting" else PATIENCE
    honest, _ = together(2, party, patience=patience)
    assert isinstance(honest, RuntimeError), honest
    assert "data owner" in str(honest)
    with pytest.raises(type(honest), match=said):
        raise honest
    if kind != "waiting":
        assert isinstance(honest, SessionError)
    assert "stacktrace" not in str(honest)


def malformed(message):
    """Yield what may stand in the place of an opening, and a word of the refusal."""
    salt, meta, part = unpack(message)
    other_type = meta.replace(b"\x08\x0c", b"\x08\x0b")
    other_shape = meta.replace(b'"\x03\n\x01\x05', b'"\x03\n\x01\x06')
    assert len({meta, other_type, other_shape}) == 3
    huge = meta.replace(b'"\x03\n\x01\x05', b'"\x07\n\x05\xff\xff\xff\xff\x0f')
    yield b"", "no share"
    yield message[:-3], "no share"
    yield message + b"more", "no share"
    yield np.random.default_rng(0).bytes(len(message)), "no share"
    yield struct.pack("<I", 2**32 - 1) + message, "no share"
    yield struct.pack("<I3Q", 3, 2**63, 2**63, 2**63) + message, "no share"
    yield pack([salt, meta]), "no share"
    yield pack([salt, meta, part, part]), "no share"
    yield pack([salt, b"", part]), "type or shape"
    yield pack([salt, other_type, part]), "type or shape"
    yield pack([salt, other_shape, part + bytes(8)]), "type or shape"
    yield pack([salt, huge, part]), "type or shape"
    yield pack([salt, meta, part[:-8]]), "32 bytes"
    yield pack([salt, meta, part + bytes(8)]), "48 bytes"
    yield pack([salt, meta, b""]), "0 bytes"
    yield pack([salt[:16], meta, part]), "behind 16"
    yield pack([salt, meta, bytes(len(part))]), "did not commit"
    yield pack([bytes(32), meta, part]), "did not commit"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_malformed_shares_are_refused_before_spu_reads_them(protocol):
    values, n_kinds = np.arange(5.0), 18
    _, shares = shares_of(protocol, values)
    for i in range(n_kinds):
        said = []

        def party(rank, wire, i=i, said=said):
            openings = wire.openings(rank)
            send = openings._send

            def wrong(to, message):
                # On ABY3 rank 0 is sent rank 1's part in full.
                if len(message) > 32 and to == 0:
                    kinds = [*malformed(message)]
                    assert len(kinds) == n_kinds
                    message, word = kinds[i]
                    said.append(word)
                send(to, message)

            if rank == 1:
                openings._send = wrong
            return openings.open(shares[rank], 5)

        honest, *_ = together(PROTOCOLS[protocol], party)
        assert isinstance(honest, SessionError), (i, honest)
        assert "the data owner" in str(honest), i
        assert said[0] in str(honest), i


@pytest.mark.parametrize("message", [b"", b"short", bytes(31), bytes(33), bytes(500)])
def test_what_is_no_commitment_is_refused(message):
    _, shares = shares_of("CHEETAH", np.arange(5.0))

    def party(rank, wire):
        if rank == 1:
            wire.lines[1, 0].put(message)
            return None
        return wire.openings(0).open(shares[0], 5)

    wire_left = together(2, party)[0]
    assert isinstance(wire_left, SessionError)
    assert f"the data owner sent {len(message)} bytes" in str(wire_left)


def test_nothing_is_opened_before_all_have_committed():
    _, shares = shares_of("ABY3", np.arange(5.0))

    def party(rank, wire):
        if rank == 2:  # the helper commits to nobody
            return None
        try:
            return wire.openings(rank).open(shares[rank], 5)
        finally:
            sizes = [m for other in range(3) for m in wire.lines[rank, other].queue]
            assert all(len(each) == 32 for each in sizes)

    for honest in together(3, party, patience=0.3)[:2]:
        assert isinstance(honest, RuntimeError)
        assert "third party's commitment" in str(honest)


@pytest.mark.parametrize("liar", [0, 1, 2])
@pytest.mark.parametrize("values", [np.arange(5.0), np.arange(5) % 2 > 0])
def test_a_copy_that_differs_is_refused(values, liar):
    """On ABY3 a part that is changed before it is committed to has another copy."""
    from mpc_bridge.engines.spu._opening import Openings, _Words

    _, shares = shares_of("ABY3", values)
    words = _Words(shares[liar], 5)
    parts = [bytearray(words.part(i)) for i in range(2)]
    for part in parts:
        part[0] ^= 0x80
    shares[liar] = words.share([bytes(part) for part in parts])

    def party(rank, wire):
        assert isinstance(openings := wire.openings(rank), Openings)
        return openings.open(shares[rank], 5)

    found = together(3, party)
    for rank in {0, 1, 2} - {liar}:
        assert isinstance(found[rank], SessionError), found[rank]
        assert "has another copy of a share than" in str(found[rank])


def test_no_party_can_have_another_one_named():
    """The helper tells the owners other things about itself."""
    values = np.arange(5.0)
    io, shares = shares_of("ABY3", values)

    def party(rank, wire):
        drawn = (*DRAWN[:2], b"another") if rank == 1 else DRAWN
        return wire.openings(rank, drawn).open(shares[rank], 5)

    model_owner, data_owner, _ = together(3, party)
    np.testing.assert_array_equal(io.Reconstruct(model_owner), values)
    assert isinstance(data_owner, SessionError)
    assert "third party" in str(data_owner)


def test_a_commitment_tells_nothing_and_never_repeats():
    values = np.zeros(5)
    _, shares = shares_of("CHEETAH", values)
    sent = []

    def party(rank, wire):
        openings = wire.openings(rank)
        send = openings._send
        openings._send = lambda to, message: (sent.append(message), send(to, message))
        for _ in range(3):
            openings.open(shares[rank], 5)

    assert together(2, party) == [None, None]
    commitments = [message for message in sent if len(message) == 32]
    salts = [unpack(message)[0] for message in sent if len(message) != 32]
    assert len(set(commitments)) == len(set(salts)) == len(salts) == 6


def test_what_stands_before_a_chunks_content_is_told_apart():
    from mpc_bridge.engines.spu._shares import head_of

    for head in (b"\x08\x04\x1a\x02", b"\x08\x80\x01\x10\x1a\x1a\x82\x00"):
        assert head_of(head + b"\x1a\x1a") == head


def run_damaged(engine, place, values):
    """Return what this party raises when rank 1, or an owner, sends garbage."""
    from test_spu_engines import shared

    from mpc_bridge.engines import Unseen

    send = engine._send
    try:
        if place == "opening":
            secret = shared(Ledger(engine), values)
            if engine.rank == 1:
                other = lambda message: message[:-1] + bytes([message[-1] ^ 1])
                engine._openings._send = lambda to, m: send(to, other(m))
            return engine.reveal(secret)
        unseen = Unseen(values.shape, values.dtype == bool)
        if engine.rank == 0:
            engine._send = lambda to, message: send(to, place(message))
        return engine.share(0, values if engine.rank == 0 else unseen)
    except SessionError as error:
        return str(error)


def test_a_damaged_opening_ends_in_a_sentence():
    honest, _ = play("spu-cheetah", run_damaged, "opening", np.arange(5.0))
    assert "opening 1 is refused: the data owner sent" in honest


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: b"",
        lambda m: m[:-1],
        lambda m: m + b"0",
        lambda m: pack([]),
        lambda m: pack([b"", *unpack(m)[1:]]),
        lambda m: pack([unpack(m)[0], b"\xff" * 64]),
        lambda m: pack([unpack(m)[0], b"\xff" * len(unpack(m)[1])]),
        lambda m: pack([*unpack(m), unpack(m)[1]]),
    ],
)
def test_malformed_weights_end_in_a_sentence(damage):
    from mpc_bridge.engines.spu._shares import packed, unpacked

    _, shares = shares_of("ABY3", np.arange(5.0))
    message = packed(shares[1])
    assert unpacked(message, shares[2]).share_chunks == shares[1].share_chunks
    with pytest.raises(ValueError, match=r"must|bytes"):
        unpacked(damage(message), shares[2])


@pytest.mark.parametrize(
    ("engine", "values"),
    [("spu-aby3", np.arange(5.0)), ("spu-cheetah", np.arange(19) % 2 > 0)],
)
def test_malformed_shares_of_an_owner_are_named(engine, values):
    cut = lambda message: message[:-1]
    for found in play(engine, run_damaged, cut, values)[1:]:
        assert "the model owner did not send the shares that were due" in found


CHEATING = """
import os, sys
from mpc_bridge.engines.spu import _opening
commit = _opening.Openings._commit

def late(self, sender, *rest):
    return os.urandom(32) if sender == self._rank else commit(self, sender, *rest)

_opening.Openings._commit = late
from mpc_bridge.__main__ import main
status = main(sys.argv[1:])
sys.stderr.flush()
os._exit(status)
"""


@pytest.mark.slow
@pytest.mark.multihost
def test_a_session_with_a_cheating_data_owner_has_no_result(files, tmp_path):
    """It would choose its share once it has seen the other's."""
    session = Session(files, tmp_path, "spu-cheetah", timeout=PATIENCE)
    start = session.start
    command = [sys.executable, "-c", CHEATING, ROLES[1], "--config"]
    session.start = lambda rank, *options: (
        Role([*command, session.paths[1]]) if rank == 1 else start(rank)
    )
    with running(session) as roles:
        status, honest = roles[0].wait()[0], roles[0]
        assert status == 1, honest.said
    assert "opening 1 is refused: the data owner sent a share that it" in honest.said
    assert "stack" not in honest.said
    assert not [*tmp_path.rglob("result.json")]
