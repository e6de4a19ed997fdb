"""Parties that do not agree end before anything secret is sent, and both say why."""

import pytest
from parties import both

from mpc_bridge._handshake import MAGIC, differences, digest

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]

TERMS = {
    "session.name": digest("reviews"),
    "session.seed": 7,
    "session.samples": 60,
    "number of phases": 2,
    "phases[0].keep": 30,
    "phases[1].keep": 10,
    "phases[0].batch": "by memory",
    "fraction bits of phase 1": 16,
    "manifest of phase 2": digest("{}"),
    "appraisal.threshold": None,
    "version of torch": "2.13.0",
}


def shake(rank, options):
    """Return what a party gets or says, and the bytes that it sent and received.

    Args:
        rank: Of the party.
        options: Terms of the data owner that are `changed`; reasons of ranks that
            `stop`; and each rank's `protocol`, `magic` number and `length` of message.
    """
    import crypten
    import torch
    from crypten.config import cfg

    from mpc_bridge import _handshake
    from mpc_bridge._handshake import SessionError, agree, stop

    cfg.communicator.verbose = True
    communicator = crypten.communicator.get()
    before = communicator.comm_bytes
    _handshake.PROTOCOL = options.get("protocol", (1, 1))[rank]
    _handshake.MAGIC = options.get("magic", (MAGIC, MAGIC))[rank]
    terms = TERMS | (options.get("changed", {}) if rank else {})
    terms = {name: value for name, value in terms.items() if value != "left out"}
    try:
        if rank in options.get("stop", {}):
            stop(communicator, options["stop"][rank])
            return None, communicator.comm_bytes - before
        if options.get("length", (0, 0))[rank]:
            header = [MAGIC, 1, 1, options["length"][rank]]
            communicator.all_gather(torch.tensor(header))
            return None, 0
        found = agree(communicator, terms, {"batches": [8 + rank]})
    except SessionError as error:
        found = str(error)
    return found, communicator.comm_bytes - before


def test_equal_terms_return_both_offers():
    for offers, _ in both(shake, {}):
        assert offers == [{"batches": [8]}, {"batches": [9]}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"session.name": digest("others")}, "session.name differs"),
        ({"session.seed": 8}, "session.seed: the model owner has 7, the data owner 8"),
        ({"session.samples": 61}, "session.samples: the model owner has 60"),
        ({"number of phases": 3}, "number of phases: the model owner has 2"),
        ({"phases[1].keep": 11}, "phases[1].keep: the model owner has 10"),
        ({"phases[0].batch": 64}, "phases[0].batch: the model owner has 'by memory'"),
        ({"fraction bits of phase 1": 20}, "fraction bits of phase 1: the model owner"),
        ({"manifest of phase 2": digest("{ }")}, "manifest of phase 2 differs"),
        ({"appraisal.threshold": 0.5}, "appraisal.threshold: the model owner has None"),
        (
            {"version of torch": "2.12"},
            "version of torch: the model owner has '2.13.0'",
        ),
        ({"session.seed": "left out"}, "session.seed: the model owner has 7, the data"),
        ({"more": 1}, "more: the model owner has 'none', the data owner 1"),
    ],
)
def test_both_name_what_differs(change, message):
    results = both(shake, {"changed": change})
    for found, size in results:
        assert found.startswith(f"the parties do not agree: {message}")
        assert ";" not in found  # nothing else differs
        assert 0 < size < 50_000  # the terms, one number for each byte


def test_all_that_differs_is_named():
    change = {"session.seed": 8, "phases[0].keep": 31}
    assert differences(TERMS, TERMS | change) == [
        "session.seed: the model owner has 7, the data owner 8",
        "phases[0].keep: the model owner has 30, the data owner 31",
    ]


def test_a_party_that_stops_says_why():
    (found, _), (nothing, _) = both(shake, {"stop": {1: "x must be finite\n\x1b[1m"}})
    assert nothing is None
    assert found == "the data owner stopped: x must be finite  [1m"
    (_, _), (found, _) = both(shake, {"stop": {0: "no weights"}})
    assert found == "the model owner stopped: no weights"
    for found, _ in both(shake, {"stop": {0: "one", 1: "two"}}):
        assert found is None


def test_protocols_must_be_equal():
    message = "protocol: the model owner has 1, the data owner has 2"
    for found, size in both(shake, {"protocol": (1, 2)}):
        assert found == f"the parties do not agree: {message}"
        assert size < 100


def test_strangers_are_refused():
    (first, _), (second, _) = both(shake, {"magic": (MAGIC, 5)})
    assert first == "the data owner is no party of jaxsel's secure run"
    assert second == "the model owner is no party of jaxsel's secure run"


def test_a_message_has_a_longest_length():
    (found, _), _ = both(shake, {"length": (0, 1 << 40)})
    assert found == "the data owner's first message is not of this protocol"
