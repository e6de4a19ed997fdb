"""The command line: `python -m mpc_bridge --help`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import _certs_command
from ._decline import decline
from ._ending import watch_for_end
from ._handshake import RANKS, ROLES, Refused, SessionError
from ._local import run_local
from ._read_config import read_config
from ._session import deal, play
from ._toml import ConfigError

_DESCRIPTION = """\
Two parties choose samples in secret. Each starts its role on its own machine, with a
run.toml that has the same public part for all; `local` runs all roles here. The engine,
in [session], says which roles there are:

  spu-cheetah   model owner and data owner, over TLS; the default
  spu-aby3      the same and a third party who helps, over TLS; spu-aby3-128 likewise
                with more digits
  crypten       the same and a third party who deals randomness; protects nothing, for
                measurement only
  published     the data owner alone, with a proxy that is no secret

Parties of SPU's engines need certificates first: see `certs`."""

_HELP = {
    "model-owner": "with the weights",
    "data-owner": "with the samples; alone with a published proxy",
    "third-party": "the helper of spu-aby3, or the dealer of crypten",
    "local": "all roles on this machine, for trials",
    "estimate": "what a run will send and give away, and how long it takes",
}


def main(argv: Sequence[str] | None = None, *, own_process: bool = False) -> int:
    """Run a command and return its exit status.

    Args:
        argv: Arguments; those of this process if None.
        own_process: Whether a role may end this process when a signal says so.

    Returns:
        0 if it succeeded, 1 if the session did not, 2 after an error in the command or
        the configuration, 130 if it was interrupted.
    """
    args = _parser().parse_args(argv)
    name = ROLES[RANKS[args.command]] if args.command in RANKS else args.command
    if own_process and args.command in RANKS:
        watch_for_end(name, parent=args.part_of_local)
    try:
        return _run(args)
    except KeyboardInterrupt:
        return _fail(name, "interrupted", 130)
    except (ConfigError, FileNotFoundError) as error:
        if args.debug:
            raise
        _fail(name, str(error), 2)
        if args.command in RANKS and args.config and not args.part_of_local:
            decline(args.command, args.config, error)
        return 2
    except (Refused, SessionError) as error:
        if args.debug:
            raise
        return _fail(name, str(error), 1)
    except Exception as error:
        if args.debug:
            raise
        message = f"{type(error).__name__}: {error} (--debug shows where)"
        return _fail(name, message, 1)


def _run(args: argparse.Namespace) -> int:
    if args.command == "certs":
        return _certs_command.run(args)
    if args.command == "estimate":
        from ._estimate import estimate

        bandwidth = None if args.bandwidth is None else args.bandwidth * 1e6
        config = read_config(args.config)
        latency = None if args.latency is None else args.latency / 1e3
        text = estimate(
            config,
            bandwidth=bandwidth,
            latency=latency,
            calibrated=args.calibrate,
            reveals=not args.no_attack,
        )
        _print(text)
        return 0
    options: dict[str, Any] = {
        "test_only_first_party": args.test_only_first_party,
        "force": args.force,
        "progress": args.progress or sys.stderr.isatty(),
    }
    if args.command == "third-party" and args.config is None:
        if args.rendezvous is None:
            raise ConfigError(
                "third-party needs --config, or the --rendezvous of engine 'crypten'"
            )
        deal(args.rendezvous)
        return 0
    config = read_config(args.config)
    config = config.with_limits(lambda limits: limits.changed(args.limit))
    if args.command == "local":
        result = run_local(config, python=args.python, **options)
    else:
        result = play(
            args.command,
            config,
            rendezvous=args.rendezvous,
            notice=args.part_of_local is None,
            **options,
        )
    if result is not None and getattr(args, "part_of_local", None) is None:
        from ._estimate import summary

        _print(summary(result))
    return 0


def _parser() -> argparse.ArgumentParser:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m mpc_bridge", description=_DESCRIPTION, formatter_class=kind
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _certs_command.add_parser(commands)
    for command, text in _HELP.items():
        subparser = commands.add_parser(
            command, help=text, description=text, allow_abbrev=False
        )
        needed = command != "third-party"  # CrypTen's dealer needs none
        subparser.add_argument("--config", metavar="RUN.TOML", required=needed)
        subparser.add_argument(
            "--debug", action="store_true", help="show where an error came from"
        )
        if command == "estimate":
            subparser.add_argument(
                "--bandwidth", type=_positive, metavar="MB/S", help="of the link"
            )
            subparser.add_argument(
                "--latency", type=_positive, metavar="MS", help="one way, of the link"
            )
            subparser.add_argument(
                "--no-attack",
                action="store_true",
                help="costs alone, not what the answers should give away",
            )
            subparser.add_argument(
                "--calibrate",
                action="store_true",
                help="measure here how long it computes; a minute, SPU's engines only",
            )
            continue
        subparser.add_argument(
            "--force", action="store_true", help="replace a result that is there"
        )
        subparser.add_argument(
            "--progress", action="store_true", help="show bars off a terminal as well"
        )
        subparser.add_argument(
            "--test-only-first-party",
            action="store_true",
            help="no third party; protects nothing, for tests only",
        )
        subparser.add_argument(
            "--limit",
            action="append",
            default=[],
            metavar="NAME=NUMBER",
            help="not the config's: sessions, reopenings, openings or rows",
        )
        if command == "local":
            subparser.add_argument(
                "--python", metavar="PATH", help="interpreter that runs the roles"
            )
        if command in RANKS:
            subparser.add_argument(
                "--rendezvous", metavar="TCP://HOST:PORT", help="not the config's"
            )
            subparser.add_argument(
                "--part-of-local", type=int, metavar="PID", help=argparse.SUPPRESS
            )
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and above zero, got {text}")
    return value


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fail(name: str, message: str, status: int) -> int:
    sys.stderr.write(f"{name}: error: {' '.join(message.split())}\n")
    return status


if __name__ == "__main__":
    code = main(own_process=True)
    # Threads of a broken connection must not keep the process.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
