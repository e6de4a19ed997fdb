"""One role of a secure run, as a process: terms first, then phases, then a result."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ._config import Config, Parties
from ._config_checks import check_config
from ._ending import end_now, set_doing
from ._handshake import (
    FIRST_PARTY,
    PROTOCOL,
    RANKS,
    ROLES,
    Refused,
    SessionError,
    agree,
    digest,
    say,
    stop,
)
from ._read_config import read_config
from ._toml import ConfigError, check_rendezvous
from .engines import Engine, Meeting, engine_of

if TYPE_CHECKING:
    from ._result import Result

Role = Literal["model-owner", "data-owner", "third-party"]


def run(
    role: Role,
    config: Config | str | Path,
    *,
    rendezvous: str | None = None,
    test_only_first_party: bool = False,
    force: bool = False,
    progress: bool = False,
    notice: bool = True,
    python: str | os.PathLike[str] | None = None,
) -> Result | None:
    """Play one role of a secure run until its end.

    CrypTen is set up in this process and taken down again. SPU may end the process that
    it runs in, when a message can't be sent: it gets one of its own.

    Args:
        role: "model-owner", "data-owner" or "third-party".
        config: A run.toml, or what `read_config` returned.
        rendezvous: Instead of the configuration's, of CrypTen.
        test_only_first_party: CrypTen without a third party; protects nothing.
        force: Replace a result that lies in the output folder.
        progress: Show bars on standard error.
        notice: Show what the engine does not protect from, on standard error.
        python: Interpreter of another environment that plays the role, with this
            version of jaxsel and the engine, of SPU and "published"; None takes this
            process's.

    Returns:
        The party's `Result`, which is in its output folder as well; None for CrypTen's
        third party.

    Raises:
        ConfigError: If the configuration can't be used.
        Refused: If this party's files don't fit; the other parties were told which rule
            they break.
        SessionError: If another party stopped, is gone, or does not agree.
    """
    if role not in RANKS:
        raise ValueError(f"role must be one of {', '.join(RANKS)}, got {role!r}")
    if not isinstance(config, Config):
        config = read_config(config)
    check_config(config)
    engine = _engine_for(config, role, test_only_first_party)
    if python is not None and engine.name == "crypten":
        raise ConfigError(
            f"python is not for a role of engine 'crypten', got {os.fspath(python)!r}: "
            "run the role's command with that interpreter"
        )
    if engine.own_process or python is not None:
        from ._local import run_role

        return run_role(
            role,
            config,
            force=force,
            progress=progress,
            notice=notice,
            python=python,
        )
    return play(
        role,
        config,
        rendezvous=rendezvous,
        test_only_first_party=test_only_first_party,
        force=force,
        progress=progress,
        notice=notice,
    )


def play(
    role: Role,
    config: Config,
    *,
    rendezvous: str | None = None,
    test_only_first_party: bool = False,
    force: bool = False,
    progress: bool = False,
    notice: bool = True,
) -> Result | None:
    """Do as `run`, in this process, which must end by `os._exit` after SPU's."""
    engine = _engine_for(config, role, test_only_first_party)
    rank = RANKS[role]
    meeting = meeting_of(config, rank, rendezvous, test_only_first_party)
    if notice:
        text = f"{engine.notice}\n{FIRST_PARTY}" if test_only_first_party else None
        say(text or engine.notice)
    waiting = f"{ROLES[rank]}: waiting for {_others(engine, rank, meeting)}"
    if rank >= engine.parties:
        say(waiting)
        with _explained(engine, rank, lambda: "setting up"):
            engine.serve(rank, meeting)
        return None
    from ._party import Party  # imports JAX

    party = Party(role, rank, engine, config, force=force, progress=progress)
    set_doing(lambda: party.where)
    if engine.own_process:

        def give_up(text: str) -> None:
            end_now(ROLES[rank], text, 1)

        meeting = dataclasses.replace(meeting, give_up=give_up)
    refusal: Exception | None = None
    reason = ""
    try:
        party.prepare()
    except Refused as error:
        refusal, reason = error, error.rule
    except Exception as error:  # the other parties need not wait for this one
        refusal, reason = error, f"an error of type {type(error).__name__}"
    if len(engine.roles) > 1:
        say(waiting)
    with (
        contextlib.closing(party),
        _explained(engine, rank, lambda: party.where),
        engine.connect(rank, meeting) as connected,
    ):
        if refusal is not None:
            with contextlib.suppress(RuntimeError):  # nobody is left to hear it
                stop(connected, reason)
            raise refusal
        offers = agree(connected, party.terms(connected), party.offers(connected))
        result = party.play(connected, offers)
    return party.measured(result)


def deal(rendezvous: str, *, notice: bool = True) -> None:
    """Play CrypTen's third party: deal correlated randomness until the run ends.

    Needs no run.toml. Sees sizes and the order of operations, and could open everything
    together with either party.

    Args:
        rendezvous: Where the model owner listens, "tcp://host:port".
        notice: Show what CrypTen does not protect from, on standard error.

    Raises:
        ConfigError: If the rendezvous is no address.
        SessionError: If the session ended early.
    """
    engine = engine_of("crypten")
    meeting = Meeting(
        session="", rendezvous=_check_rendezvous(rendezvous), hello=_hello(engine)
    )
    if notice:
        say(engine.notice)
    rank = RANKS["third-party"]
    say(f"{ROLES[rank]}: waiting for {_others(engine, rank, meeting)}")
    with _explained(engine, rank, lambda: "setting up"):
        engine.serve(rank, meeting)


def _engine_for(config: Config, role: str, first_party: bool) -> type[Engine]:
    """Return the configuration's engine, if it has this role."""
    engine = engine_of(config.session.engine)
    if first_party and engine.name != "crypten":
        raise ConfigError(
            "--test-only-first-party is for engine 'crypten' only, got "
            f"{engine.name!r}: it needs no dealer"
        )
    if RANKS[role] not in engine.roles:
        raise ConfigError(f"engine {engine.name!r} has no {ROLES[RANKS[role]]}")
    if RANKS[role] >= 2 and first_party:
        raise ConfigError("there is no third party with --test-only-first-party")
    return engine


def meeting_of(
    config: Config, rank: int, rendezvous: str | None, first_party: bool
) -> Meeting:
    session, part = config.session, config.part(rank)
    if session.engine == "published":
        return Meeting(session=session.name)
    hello = _hello(engine_of(session.engine)) | {"session.name": digest(session.name)}
    if session.engine == "crypten":
        return Meeting(
            session=session.name,
            rendezvous=_check_rendezvous(rendezvous or session.rendezvous or ""),
            timeout=session.timeout,
            wait=session.wait,
            hello=hello,
            test_only_first_party=first_party,
        )
    if rendezvous is not None:
        raise ConfigError("--rendezvous is for engine 'crypten' only")
    places = places_of(config.parties)
    return Meeting(
        session=session.name,
        addresses=tuple(place.address for place in places),
        names=tuple(place.name for place in places),
        certificates=None if part is None else part.certificates,
        listen=None if part is None else part.listen,
        timeout=session.timeout,
        wait=session.wait,
        hello=hello,
    )


def _hello(engine: type[Engine]) -> dict[str, Any]:
    """Return the terms that roles compare before any other message."""
    from jaxsel import __version__

    versions = {"jaxsel": __version__, **engine.versions()}
    return {
        "protocol": PROTOCOL,
        "session.engine": engine.name,
        **{f"version of {name}": version for name, version in versions.items()},
    }


def places_of(parties: Parties | None) -> list[Any]:
    """Return the places of the parties that there are, by rank."""
    if parties is None:
        raise ConfigError("parties is missing: each party's name and address")
    addresses = [parties.model_owner, parties.data_owner, parties.third_party]
    return [place for place in addresses if place is not None]


def _check_rendezvous(rendezvous: str) -> str:
    address = check_rendezvous("rendezvous", rendezvous)
    if address.endswith(":0"):
        raise ConfigError(
            f"rendezvous must name a port, got {address!r}: 0 is for local only"
        )
    return address


def _others(engine: type[Engine], rank: int, meeting: Meeting) -> str:
    """Return whom a role waits for, and where."""
    roles = engine.roles[: 2 if meeting.test_only_first_party else 3]
    names = [
        f"the {ROLES[i]}" + (f" at {meeting.addresses[i]}" if meeting.addresses else "")
        for i in roles
        if i != rank
    ]
    where = f" at {meeting.rendezvous}" if meeting.rendezvous else ""
    return " and ".join(names) + where


@contextlib.contextmanager
def _explained(
    engine: type[Engine], rank: int, where: Callable[[], str]
) -> Iterator[None]:
    """Turn an error of the wire into one that says who is gone."""
    try:
        yield
    except (SessionError, ConfigError, Refused):
        raise
    except RuntimeError as error:
        meaning = engine.explain(rank, error)
        if meaning is None:
            raise
        raise SessionError(f"{where()}: {meaning}") from error
