"""The command `certs`: own, trust, show, make."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ._certificate import Certificate, CertificateError, days_left, read
from ._certs import CERTIFICATE, DAYS, MOST_DAYS, PEERS, make, make_all, problems, trust

_HELP = "make this party's key and certificate, and trust those of others"


def add_parser(commands: Any) -> None:
    """Add the `certs` command to the parser of `python -m mpc_bridge`."""
    certs = commands.add_parser("certs", help=_HELP, description=_HELP)
    actions = certs.add_subparsers(dest="action", metavar="ACTION", required=True)

    make_own = _action(actions, "own", "make this party's key and certificate")
    make_own.add_argument(
        "--name", required=True, help="of this party, as others see it"
    )
    _days(make_own)
    make_own.add_argument(
        "--force", action="store_true", help="replace those that are there"
    )

    other = _action(actions, "trust", "trust the certificate that another party sent")
    other.add_argument("certificate", metavar="CERTIFICATE.PEM")
    other.add_argument(
        "--fingerprint", default="", help="as its owner reads it out; needed to trust"
    )
    other.add_argument(
        "--force", action="store_true", help="replace the one of that name"
    )

    _action(actions, "show", "show who is trusted until when, and what is wrong")

    every = _action(
        actions, "make", "make all parties' folders on one machine, for trials"
    )
    every.add_argument(
        "--party", action="append", required=True, metavar="NAME", help="one for each"
    )
    _days(every)
    every.add_argument("--force", action="store_true", help="make new keys")


def run(args: argparse.Namespace) -> int:
    """Run an action of the command; returns its exit status.

    Raises:
        CertificateError: If something can't be used.
    """
    folder = Path(args.folder)
    if args.action == "own":
        certificate = make(folder, args.name, days=args.days, force=args.force)
        _print(_line("own", certificate))
        _print(
            f"Send {certificate.path} to the other parties, and read them the "
            "fingerprint over another channel."
        )
    elif args.action == "trust":
        other = trust(
            folder, args.certificate, fingerprint=args.fingerprint, force=args.force
        )
        _print(_line("peer", other))
    elif args.action == "make":
        certificates = make_all(folder, args.party, days=args.days, force=args.force)
        for party in certificates.values():
            _print(f"{party}\n  {_line('own', read(party / CERTIFICATE))}")
    else:
        return _show(folder)
    return 0


def _show(folder: Path) -> int:
    files = [("own", folder / CERTIFICATE)]
    files += [("peer", path) for path in sorted((folder / PEERS).glob("*.pem"))]
    wrong = []
    for role, path in files:
        try:
            _print(_line(role, read(path)))
        except CertificateError as error:
            wrong.append(str(error))
    wrong += [text for text in problems(folder) if text not in wrong]
    for text in wrong:
        _print(f"problem: {text}")
    return 1 if wrong else 0


def _line(role: str, one: Certificate) -> str:
    days = days_left(one)
    validity = f"{days} days left" if days >= 0 else "ended"
    until = f"until {one.end:%Y-%m-%d} ({validity})"
    return f"{role}: {one.name}, {until}\n  {one.fingerprint}"


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.add_argument("--folder", required=True, help="of the certificates")
    parser.add_argument(
        "--debug", action="store_true", help="show where an error came from"
    )
    return parser


def _days(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        type=int,
        default=DAYS,
        help=f"valid for, at most {MOST_DAYS} ({DAYS})",
    )


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
