"""CrypTen behind the face of engines: what it shares, its terms, what it refuses."""

import numpy as np
import pytest
from parties import both

pytestmark = [pytest.mark.mpc, pytest.mark.multihost]

ULP = 2.0**-16


def share_and_open(rank, owner, numbers):
    """Return what one party's numbers are when they are opened, and the openings."""
    from mpc_bridge import Ledger
    from mpc_bridge.engines import Unseen
    from mpc_bridge.engines.crypten import CryptenEngine

    engine = CryptenEngine()
    ledger, array = Ledger(engine, allow=("scores",)), np.array(numbers)
    given = array if rank == owner else Unseen(array.shape)
    (secret,) = engine.share(owner, given)
    assert engine.shape(secret) == array.shape
    return ledger.open("scores", secret).tolist()


@pytest.mark.parametrize("owner", [0, 1])
@pytest.mark.every(2)
def test_what_is_shared_is_rounded_to_the_nearest_number(owner):
    whole = np.array([0, 1, -1, 7, -70_000, 2**40, -(2**40)])
    for part in (-0.49, -0.3, 0.3, 0.49):
        numbers = ((whole + part) * ULP).tolist()
        for found in both(share_and_open, owner, numbers):
            assert found == (whole * ULP).tolist()


def terms_by(rank, providers):
    """Return what both say whose randomness comes from different providers."""
    from crypten.config import cfg

    from mpc_bridge._handshake import SessionError, agree
    from mpc_bridge.engines.crypten import CryptenEngine

    engine = CryptenEngine()
    with cfg.temp_override({"mpc.provider": providers[rank]}):
        terms = engine.terms()
    try:
        return agree(engine, terms, {})
    except SessionError as error:
        return str(error)


def test_providers_must_be_the_same():
    for found in both(terms_by, ("TTP", "TFP")):
        assert found == (
            "the parties do not agree: provider: the model owner has 'TTP', the data "
            "owner 'TFP'"
        )
    assert both(terms_by, ("TTP", "TTP")) == ([{}, {}], [{}, {}])


def refuse(rank):
    """Return what CrypTen's engine says to what it can't do, and what was sent."""
    import torch

    import mpc_bridge
    from mpc_bridge.engines.crypten import CryptenEngine

    crypten, engine = mpc_bridge.import_crypten(), CryptenEngine()
    scores = crypten.cryptensor(torch.tensor([3.0, 1.0, 2.0]), src=0)
    before, said = engine.count(), []
    for function, options in (
        (engine.start, {"fraction_bits": 18}),
        (engine.exchange, {"message": bytes(2**20 + 1)}),
        (
            mpc_bridge.choose,
            {
                "scores": scores,
                "k": 1,
                "seed": 0,
                "leak": "set",
                "ledger": mpc_bridge.Ledger(engine),
            },
        ),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            function(**options)
        said.append(str(caught.value))
    engine.start(16)
    return said, engine.count() == before


def test_what_it_cannot_do_is_refused_before_anything_is_sent():
    for said, silent in both(refuse):
        assert said == [
            "fraction_bits must be 16, as CrypTen's encoder.precision_bits, got 18",
            "message must have at most 1048576 bytes, got 1048577",
            "leak='set' needs an engine that can shuffle in secret: spu-aby3 or "
            "spu-cheetah; CrypTen has 'rank' only",
        ]
        assert silent


def test_the_notice_says_what_it_does_not_protect_from():
    from mpc_bridge.engines import engine_of

    notice = engine_of("crypten").notice
    for part in ("for measurement only", "32 bits of seed", "without TLS", "trusted"):
        assert part in notice
