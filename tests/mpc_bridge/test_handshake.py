"""Parties that do not agree end before anything secret is sent, and all say why."""

import json

import pytest
from parties import both
from threads import Wire, together

from mpc_bridge._handshake import (
    PROTOCOL,
    SessionError,
    agree,
    differences,
    digest,
    printable,
    stop,
)

TERMS = {
    "session.name": digest("reviews"),
    "session.seed": 7,
    "session.samples": 60,
    "number of phases": 2,
    "phases[0].keep": 30,
    "phases[1].keep": 10,
    "phases[0].batch_size": "by memory",
    "fraction bits of phase 1": 16,
    "manifest of phase 2": digest("{}"),
    "appraisal.threshold": None,
    "version of torch": "2.13.0",
}
MAGIC = 0x6A61787365  # of CrypTen's engine
NOT_OURS = "the data owner's first message is not of this protocol"


def shake(*parties, offers=True):
    """Return what each party gets or says: of its terms, or a text to stop with."""

    def play(rank, room):
        mine, wire = parties[rank], Wire(room, rank)
        if isinstance(mine, str):
            return stop(wire, mine)
        return agree(wire, mine, {"batches": [8 + rank]} if offers else {})

    found = together(len(parties), play)
    for each in found:
        assert not isinstance(each, Exception) or type(each) is SessionError, each
    return found


def hear(*messages):
    """Return what a model owner with TERMS says to what the others send, as bytes."""

    def play(rank, room):
        if rank:
            return room.exchange(rank, messages[rank - 1])
        return agree(Wire(room, rank), TERMS, {"batches": [8]})

    return together(1 + len(messages), play)[0]


def message(**changes):
    """Return a message that agrees, but for changes."""
    document = {"protocol": PROTOCOL, "kind": "terms", "terms": TERMS, "offers": {}}
    return json.dumps(document | changes).encode()


@pytest.mark.parametrize("parties", [2, 3])
def test_equal_terms_return_all_offers(parties):
    for offers in shake(*[TERMS] * parties):
        assert offers == [{"batches": [8 + rank]} for rank in range(parties)]


def without(name):
    return {key: value for key, value in TERMS.items() if key != name}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (TERMS | {"session.name": digest("others")}, "session.name differs"),
        (
            TERMS | {"session.seed": 8},
            "session.seed: the model owner has 7, the data owner 8",
        ),
        (
            TERMS | {"session.samples": 61},
            "session.samples: the model owner has 60, the data owner 61",
        ),
        (
            TERMS | {"number of phases": 3},
            "number of phases: the model owner has 2, the data owner 3",
        ),
        (
            TERMS | {"phases[1].keep": 11},
            "phases[1].keep: the model owner has 10, the data owner 11",
        ),
        (
            TERMS | {"phases[0].batch_size": 64},
            "phases[0].batch_size: the model owner has 'by memory', the data owner 64",
        ),
        (
            TERMS | {"fraction bits of phase 1": 20},
            "fraction bits of phase 1: the model owner has 16, the data owner 20",
        ),
        (
            TERMS | {"manifest of phase 2": digest("{ }")},
            "manifest of phase 2 differs",
        ),
        (
            TERMS | {"appraisal.threshold": 0.5},
            "appraisal.threshold: the model owner has None, the data owner 0.5",
        ),
        (
            TERMS | {"version of torch": "2.14.0"},
            "version of torch: the model owner has '2.13.0', the data owner '2.14.0'",
        ),
        (
            without("session.seed"),
            "session.seed: the model owner has 7, the data owner 'none'",
        ),
        (
            TERMS | {"more": 1},
            "more: the model owner has 'none', the data owner 1",
        ),
        (  # a hash is not told from what is none
            TERMS | {"manifest of phase 2": "{}"},
            f"manifest of phase 2: the model owner has '{digest('{}')[:56]}..., "
            "the data owner '{}'",
        ),
    ],
)
def test_both_name_what_differs(changed, message):
    for found in shake(TERMS, changed):
        assert str(found) == f"the parties do not agree: {message}"


def test_all_three_name_the_one_that_differs():
    changed = TERMS | {"session.seed": 8}
    for found in shake(TERMS, TERMS, changed):
        assert str(found) == (
            "the parties do not agree: session.seed: the model owner has 7, the data "
            "owner 7, the third party 8"
        )
    for found in shake(TERMS, TERMS, TERMS | {"session.name": digest("others")}):
        assert str(found) == "the parties do not agree: session.name differs"


def test_all_that_differs_is_named():
    change = {"session.seed": 8, "phases[0].keep": 31}
    assert differences(TERMS, TERMS | change) == [
        "session.seed: the model owner has 7, the data owner 8",
        "phases[0].keep: the model owner has 30, the data owner 31",
    ]


def test_a_party_that_stops_says_why():
    found, nothing = shake(TERMS, "x must be finite\n\x1b[1m")
    assert nothing is None
    assert str(found) == "the data owner stopped: x must be finite  [1m"
    _, found = shake("no weights", TERMS)
    assert str(found) == "the model owner stopped: no weights"
    assert shake("one", "two") == [None, None]
    one, two, nothing = shake(TERMS, TERMS, "no room")
    assert nothing is None
    assert str(one) == str(two) == "the third party stopped: no room"


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, None, "2", [PROTOCOL], True])
def test_protocols_must_be_equal(protocol):
    assert str(hear(message(protocol=protocol))) == (
        "the parties do not agree: protocol: the model owner has "
        f"{PROTOCOL}, the data owner {protocol!r}"
    )


@pytest.mark.parametrize(
    "heard",
    [
        b"",
        b"\x80",
        b"[]",
        b"null",
        b'"kind"',
        b"{}",
        b"[" * 100_000,
        b"1" * 10_000,
        message(kind="more"),
        message(kind=["terms"]),
        message(terms=[]),
        message(offers=None),
        b'{"protocol": 2, "kind": "terms", "terms": {}}',
        message(offers="x" * 2**20),
    ],
)
def test_strangers_are_refused(heard):
    found = hear(heard)
    assert type(found) is SessionError
    assert str(found) == NOT_OURS


def test_the_role_whose_message_is_wrong_is_named():
    found = str(hear(message(), b""))
    assert found == NOT_OURS.replace("data owner", "third party")


LONG, ORDERS = "x" * 300_000, "\x1b[2J\x07\r\n\x9b1m\u202e\ud800"


@pytest.mark.parametrize(
    "changes",
    [
        {"terms": TERMS | {LONG: 1}},
        {"terms": TERMS | {"session.seed": LONG}},
        {"terms": TERMS | {"session.seed": [LONG] * 3}},
        {"terms": TERMS | {ORDERS: ORDERS, "session.name": ORDERS}},
        {"terms": {f"{ORDERS}{i}": i for i in range(10_000)}},
        {"terms": {"manifest of phase 2": f"sha256:{LONG}"}},
        {"protocol": LONG},
        {"protocol": ORDERS},
        {"kind": "stopped", "reason": LONG},
        {"kind": "stopped", "reason": ORDERS},
        {"kind": "stopped", "reason": [ORDERS]},
        {"kind": ORDERS},
    ],
)
def test_what_a_peer_says_is_neither_long_nor_obeyed(changes):
    found = hear(message(**changes))
    assert type(found) is SessionError
    assert 20 < len(str(found)) < 1100
    assert str(found).isprintable()


def test_a_printable_text_is_that_text():
    assert printable("ä b\t\x1bc 漢") == "ä b  c 漢"
    assert printable("x" * 1000) == "x" * 1000
    assert printable("x" * 1001) == "x" * 997 + "..."
    assert printable("abcdef", 5) == "ab..."


def test_own_messages_are_json_and_short():
    for terms, message in (
        ({"threshold": float("nan")}, "JSON compliant"),
        ({"name": LONG * 4}, "a message has at most 1048576 bytes, got"),
    ):
        with pytest.raises(ValueError, match=message):
            agree(Wire(None, 0), terms, {})


def exchange(rank, *messages):
    """Return what each exchange of CrypTen's engine gives, and the bytes it counts."""
    from mpc_bridge.engines.crypten import CryptenEngine

    engine, found = CryptenEngine(), []
    for pair in messages:
        before = engine.count()
        got = engine.exchange(pair[rank])
        found.append((got, (engine.count() - before).bytes))
    return found


def exchange_with_stranger(rank, tensors):
    """Return what the model owner says to what a stranger gathers, and its bytes."""
    import crypten
    import torch

    from mpc_bridge.engines.crypten import CryptenEngine

    engine = CryptenEngine()
    before = engine.count()
    if rank:
        for numbers in tensors:
            crypten.communicator.get().all_gather(torch.tensor(numbers))
        return None
    with pytest.raises(ValueError, match="what arrived") as caught:
        engine.exchange(b"hi")
    return str(caught.value), (engine.count() - before).bytes


@pytest.mark.mpc
@pytest.mark.multihost
class TestCrypten:
    """The exchange of CrypTen's engine."""

    @pytest.mark.slow
    def test_messages_arrive_as_they_are(self):
        every = bytes(range(256)) * 40
        messages = [(b"one", b"another"), (b"", b"\x00\xff\x00"), (b"", b"")]
        messages.append((every, b"x"))
        for results in both(exchange, *messages):
            for (found, size), sent in zip(results, messages, strict=True):
                assert found == list(sent)
                # Two headers of two numbers, and a number for each byte.
                assert size == 2 * 16 + 2 * 8 * max(map(len, sent))

    @pytest.mark.parametrize(
        ("magic", "length"),
        [(5, 2), (MAGIC, 1 << 40), (MAGIC, (1 << 20) + 1), (MAGIC, -1)],
    )
    @pytest.mark.left_out
    def test_strangers_are_refused(self, magic, length):
        found, size = both(exchange_with_stranger, [[magic, length]])[0]
        assert found == "what arrived is no message of jaxsel's secure run"
        assert size == 2 * 16  # nothing of that length was sent

    @pytest.mark.parametrize("number", [256, -1])
    @pytest.mark.left_out
    def test_what_is_no_byte_is_refused(self, number):
        tensors = [[MAGIC, 2], [65, number]]
        found, _ = both(exchange_with_stranger, tensors)[0]
        assert found == "what arrived is no text"
