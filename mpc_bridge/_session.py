"""One role of a secure run, as a process: terms first, then phases, then a result."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ._compat import import_crypten
from ._config import Config, ConfigError, check_config, read_config
from ._handshake import ROLES, Refused, SessionError, agree, stop
from ._toml import check_rendezvous

if TYPE_CHECKING:
    from ._result import Result

Role = Literal["model-owner", "data-owner", "third-party"]
RANKS: dict[str, int] = {"model-owner": 0, "data-owner": 1, "third-party": 2}

WEAKNESSES = """\
This is CrypTen 0.4.1 as it ships, for measurement only, between parties that trust each
other and the network:
- its masks come from a generator that is not cryptographic and has 32 bits of seed:
  whoever sees the messages, the other party too, can search for it and open all;
- its messages travel without TLS: nobody is authenticated, and anybody on the way can
  read and change them;
- parties are trusted to follow the protocol, and the third party to talk to neither;
- a party that is killed ends the others at once, one that stalls after 30 minutes only;
- fixed-point truncation fails with a probability of about |x| / 2^64 each: a few scores
  of a large pool may be far off, and nothing notices."""
FIRST_PARTY = """\
WARNING: --test-only-first-party protects nothing: the model owner makes the correlated
randomness and can read every secret of the data owner. For tests on data without
secrets."""


def run(
    role: Role,
    config: Config | str | Path,
    *,
    rendezvous: str | None = None,
    test_only_first_party: bool = False,
    force: bool = False,
    progress: bool = False,
    notice: bool = True,
) -> Result | None:
    """Play one role of a secure run until its end.

    Sets CrypTen up for this process and takes it down again.

    Args:
        role: "model-owner", "data-owner" or "third-party".
        config: A run.toml, or what `read_config` returned.
        rendezvous: Instead of the configuration's.
        test_only_first_party: Without a third party; protects nothing.
        force: Replace a result that lies in the output folder.
        progress: Show bars on standard error.
        notice: Show what CrypTen does not protect from, on standard error.

    Returns:
        The party's `Result`, which is in its output folder as well; None for the third
        party.

    Raises:
        ConfigError: If the configuration can't be used.
        Refused: If this party's files don't fit; the other party was told which rule
            they break.
        SessionError: If another party stopped, is gone, or does not agree.
    """
    if role not in RANKS:
        raise ValueError(f"role must be one of {', '.join(RANKS)}, got {role!r}")
    if not isinstance(config, Config):
        config = read_config(config)
    check_config(config)
    address = _check_address(rendezvous or config.session.rendezvous)
    if notice:
        _say(f"{WEAKNESSES}\n{FIRST_PARTY}" if test_only_first_party else WEAKNESSES)
    if role == "third-party":
        if test_only_first_party:
            raise ConfigError("there is no third party with --test-only-first-party")
        _deal(address)
        return None
    from ._party import Party  # imports JAX and torch

    party = Party(role, config, force=force, progress=progress)
    refusal: Exception | None = None
    reason = ""
    try:
        party.prepare()
    except Refused as error:
        refusal, reason = error, error.rule
    except Exception as error:  # the other party need not wait for this one
        refusal, reason = error, f"an error of type {type(error).__name__}"
    with _connected(role, address, test_only_first_party) as communicator:
        if refusal is not None:
            with contextlib.suppress(RuntimeError):  # nobody is left to hear it
                stop(communicator, reason)
            raise refusal
        with _explained(role, lambda: party.where):
            offers = agree(communicator, party.terms(), party.offers())
            return party.play(offers)


def deal(rendezvous: str, *, notice: bool = True) -> None:
    """Play the third party of a run: deal correlated randomness until it ends.

    Needs no run.toml. Sees sizes and the order of operations, and could open everything
    together with either party.

    Args:
        rendezvous: Where the model owner listens, "tcp://host:port".
        notice: Show what CrypTen does not protect from, on standard error.

    Raises:
        ConfigError: If the rendezvous is no address.
        SessionError: If the session ended early.
    """
    address = _check_address(rendezvous)
    if notice:
        _say(WEAKNESSES)
    _deal(address)


def _check_address(rendezvous: str) -> str:
    address = check_rendezvous("rendezvous", rendezvous)
    if address.endswith(":0"):
        raise ConfigError(
            f"rendezvous must name a port, got {address!r}: 0 is for local only"
        )
    return address


def _deal(address: str) -> None:
    """Serve correlated randomness until the model owner says that it is done."""
    heard: list[Any] = []
    with _connected("third-party", address, False) as communicator:
        from crypten.mpc.provider.ttp_provider import TTPServer

        receive = communicator.recv_obj

        def noted(*args: Any, **kwargs: Any) -> Any:
            heard[:] = [receive(*args, **kwargs)]
            return heard[0]

        communicator.recv_obj = noted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it would initialise CrypTen, as we did
            with _explained("third-party", lambda: "setting up"):
                TTPServer()  # returns when it is told to, and when it hears no more
        if heard != ["terminate"]:
            raise SessionError(
                f"the {ROLES[0]} ended before the session did: see what it says"
            )


@contextlib.contextmanager
def _connected(role: Role, address: str, first_party: bool) -> Iterator[Any]:
    """Yield CrypTen's communicator among all roles, and take it down afterwards."""
    crypten = import_crypten()
    import torch.distributed as dist
    from crypten.config import cfg

    rank = RANKS[role]
    others = [f"the {name}" for name in ROLES[: 2 if first_party else 3]]
    del others[rank]
    settings = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "RENDEZVOUS": address,
        "DISTRIBUTED_BACKEND": "gloo",
    }
    before = {name: os.environ.get(name) for name in settings}
    provider = cfg.mpc.provider
    cfg.mpc.provider = "TFP" if first_party else "TTP"
    cfg.communicator.verbose = True
    os.environ.update(settings)
    _say(f"{ROLES[rank]}: waiting for {' and '.join(others)} at {address}")
    try:
        with _explained(role, lambda: "setting up"):
            crypten.init()
        yield crypten.communicator.get()
        with contextlib.suppress(RuntimeError):  # the results are written by now
            crypten.uninit()  # tells the third party that this is the end
    finally:
        if dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
        crypten.communicator.DistributedCommunicator.instance = None
        crypten.mpc.provider.ttp_provider.TTPClient.uninit()
        cfg.mpc.provider = provider
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


_BROKEN = re.compile(
    r"gloo|Connection|Broken pipe|[Tt]imed? ?out|[Ss]ocket|\bstore\b", re.A
)
_LATE = re.compile(r"[Tt]imed? ?out")


@contextlib.contextmanager
def _explained(role: Role, where: Any) -> Iterator[None]:
    """Turn an error of the wire into one that says who is gone."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, SessionError) or not _BROKEN.search(str(error)):
            raise
        raise SessionError(explain(role, error, where())) from error


def explain(role: Role, error: RuntimeError, where: str) -> str:
    """Return what an error of the wire means for this role."""
    other = f"the {ROLES[1 if role == 'model-owner' else 0]}"
    functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    if role != "third-party" and functions & {"ttp_request", "_setup_generators"}:
        other = f"the {ROLES[2]}"
    text = str(error).splitlines()[0]
    if "init_process_group" in functions:
        return f"no meeting at the rendezvous, within 30 minutes or at all: {text}"
    if _LATE.search(text):
        return (
            f"{where}: {other} did not answer for 30 minutes, CrypTen's time limit "
            f"({text})"
        )
    return f"{where}: {other} is gone, it failed or was ended: see what it says"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
