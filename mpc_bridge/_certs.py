"""Certificates of the parties: made, trusted, loaded and checked.

Each party makes its own key and a certificate that nobody else signs, and keeps the
certificates of those whom it trusts beside it:

    certs/
      key.pem           of this party, mode 0600: never leaves the machine
      certificate.pem   of this party: goes to the others
      peers/*.pem       of the others, each compared by its fingerprint

There is no authority: SPU's link checks the chain of a certificate and no name, so it
would take any certificate of an authority for any party of it. A certificate that signs
itself and may sign no other is taken by those who hold it, and nothing else is: not one
of the same name, not one that its own key issued (tests/mpc_bridge/test_tunnel.py).
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ._certificate import (
    CERTIFICATE,
    Certificate,
    CertificateError,
    check_dates,
    check_name,
    days_left,
    read,
    renewal,
    require,
    same_fingerprint,
    slug,
    utc_now,
)

if TYPE_CHECKING:
    from cryptography import x509

KEY, PEERS = "key.pem", "peers"
DAYS, MOST_DAYS = 90, 825


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credentials:
    """A party's certificate and key, and the certificates of its trusted peers."""

    own: Certificate
    key: Path
    peers: tuple[Certificate, ...]


def make(
    folder: str | Path, name: str, *, days: int = DAYS, force: bool = False
) -> Certificate:
    """Make a key and a certificate of this party in a folder.

    The key is on NIST P-256, which TLS 1.2 and later take everywhere.

    Args:
        folder: Of the certificates; made with mode 0700 if it is not there.
        name: Of the party, as others will see it: 1 to 64 printable characters.
        days: How long the certificate is valid, 1 to 825; it is from an hour ago, for
            clocks that differ.
        force: Replace a key and certificate that are there.

    Returns:
        The certificate, whose file goes to the other parties.

    Raises:
        CertificateError: If the name or days are not allowed, or a key or certificate
            is there.
        ImportError: If `cryptography` is not installed.
    """
    require()
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    name = check_name(name)
    if type(days) is not int or not 1 <= days <= MOST_DAYS:
        raise CertificateError(f"days must be 1 to {MOST_DAYS}, got {days!r}")
    folder = Path(folder)
    for file in (folder / KEY, folder / CERTIFICATE):
        if file.exists() and not force:
            raise CertificateError(
                f"{file} is there: --force makes a new key, and the others must then "
                "trust the new certificate"
            )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _builder(name, days).public_key(key.public_key())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(
        folder / KEY,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        mode=0o600,
    )
    signed = certificate.sign(key, hashes.SHA256())
    _write(
        folder / CERTIFICATE,
        signed.public_bytes(serialization.Encoding.PEM),
        mode=0o644,
    )
    return read(folder / CERTIFICATE)


def make_all(
    folder: str | Path, names: Sequence[str], *, days: int = DAYS, force: bool = False
) -> dict[str, Path]:
    """Make the folders of several parties that trust each other, on one machine.

    For trials: whoever makes a key could use it.

    Returns:
        The folder of each party.

    Raises:
        CertificateError: As `make`; if names are not two or more different ones.
    """
    names = [check_name(name) for name in names]
    folders = {name: Path(folder) / slug(name) for name in names}
    if len(names) < 2 or len(set(folders.values())) < len(names):
        raise CertificateError(
            f"party must be given two or more different names, got {names}"
        )
    for place in folders.values():
        if (place / KEY).exists() and not force:
            raise CertificateError(f"{place / KEY} is there: --force makes new keys")
    certificates = {
        name: make(place, name, days=days, force=force)
        for name, place in folders.items()
    }
    for name, place in folders.items():
        for other in (other for other in names if other != name):
            certificate = certificates[other]
            trust(
                place,
                certificate.path,
                fingerprint=certificate.fingerprint,
                force=force,
            )
    return folders


def trust(
    folder: str | Path, path: str | Path, *, fingerprint: str, force: bool = False
) -> Certificate:
    """Keep another party's certificate in the folder of those who are trusted.

    Args:
        folder: With this party's own certificate.
        path: The certificate that the other party sent.
        fingerprint: As the other party says it, over another channel than the file
            came by: with or without colons, in either case.
        force: Replace a certificate of the same name.

    Raises:
        CertificateError: If the certificate can't be used, is not the one of the
            fingerprint, or has the name or key of one that is there.
    """
    folder = Path(folder)
    certificate, other = read(folder / CERTIFICATE), read(path)
    if other.fingerprint == certificate.fingerprint:
        raise CertificateError(f"{path} is this party's own certificate")
    if not same_fingerprint(fingerprint, other.fingerprint):
        raise CertificateError(
            f"{path} has the fingerprint {other.fingerprint}: compare it with what "
            f"{other.name!r} reads out over another channel, and give --fingerprint; "
            f"got {fingerprint!r}"
        )
    check_dates(other)
    old = [
        peer for peer in _peers(folder) if peer.name.casefold() == other.name.casefold()
    ]
    if old and old[0].fingerprint == other.fingerprint:
        return old[0]
    if other.name.casefold() == certificate.name.casefold():
        raise CertificateError(
            f"{path} has this party's own name, {certificate.name!r}"
        )
    if old and not force:
        raise CertificateError(
            f"{old[0].path} is another certificate of {other.name!r}: --force replaces "
            "it"
        )
    peers = folder / PEERS
    peers.mkdir(mode=0o700, exist_ok=True)
    # Two names may have one slug.
    short = other.fingerprint.replace(":", "")[:8].lower()
    target = peers / f"{slug(other.name)}-{short}.pem"
    _write(target, other.pem.encode(), mode=0o600)
    for peer in old:
        if peer.path != target:
            peer.path.unlink(missing_ok=True)
    return read(target)


def load(folder: str | Path, peers: Sequence[str] | None = None) -> Credentials:
    """Read and check a party's credentials for a session.

    Args:
        folder: As `make` and `trust` left it.
        peers: Names of the parties of this session; None takes all that are trusted.

    Raises:
        CertificateError: If something is missing or wrong, with the file and what to
            do.
    """
    folder = Path(folder)
    for file in (folder / KEY, folder / CERTIFICATE):
        if not file.is_file():
            raise CertificateError(
                f"{file} is missing: python -m mpc_bridge certs own makes it"
            )
    trusted_files = sorted((folder / PEERS).glob("*.pem"))
    for place in (
        folder,
        folder / KEY,
        folder / CERTIFICATE,
        folder / PEERS,
        *trusted_files,
    ):
        _check_mode(place)
    certificate = read(folder / CERTIFICATE)
    _check_key(folder / KEY, certificate)
    check_dates(certificate)
    trusted = {peer.name: peer for peer in _peers(folder)}
    names = list(trusted) if peers is None else list(peers)
    if not names:
        raise CertificateError(
            f"{folder / PEERS} holds no certificate: python -m mpc_bridge certs trust "
            "adds the other party's"
        )
    for name in names:
        if name not in trusted:
            known = ", ".join(map(repr, trusted)) or "nobody"
            raise CertificateError(
                f"peers must be parties that are trusted in {folder}, which are "
                f"{known}; got {name!r}"
            )
        check_dates(trusted[name])
    return Credentials(
        own=certificate, key=folder / KEY, peers=tuple(trusted[name] for name in names)
    )


def problems(folder: str | Path) -> list[str]:
    """List a folder's defects with their remedies; empty if it is valid."""
    defects = []
    try:
        credentials = load(folder)
    except CertificateError as error:
        return [str(error)]
    for certificate in (credentials.own, *credentials.peers):
        days = days_left(certificate)
        if days < 14:
            defects.append(
                f"{certificate.path} ends in {days} days: {renewal(certificate)}"
            )
    return defects


def _builder(name: str, days: int) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    today = utc_now().replace(microsecond=0)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    usages = [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(hours=1))
        .not_valid_after(today + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )


def _check_key(path: Path, own: Certificate) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise CertificateError(
            f"{path} is no private key in PEM without a password: python -m mpc_bridge "
            "certs own --force makes a new one"
        ) from None
    public = x509.load_pem_x509_certificate(own.pem.encode()).public_key()
    if key.public_key() != public:
        raise CertificateError(
            f"{path} does not belong to {own.path}: python -m mpc_bridge certs own "
            "--force makes a new pair"
        )


def _check_mode(path: Path) -> None:
    if os.name != "posix" or not path.exists():
        return
    status, secret = path.stat(), path.name == KEY
    if os.geteuid() and status.st_uid not in (0, os.geteuid()):
        raise CertificateError(
            f"{path} belongs to another user, number {status.st_uid}, who could change "
            f"it: copy it to a file of this user's"
        )
    if status.st_mode & (0o077 if secret else 0o022):
        right = "700" if path.is_dir() else "600" if secret else "644"
        raise CertificateError(
            f"{path} has mode {status.st_mode & 0o777:03o}, and others could "
            f"{'read' if secret else 'change'} it: chmod {right} {path}"
        )


def _peers(folder: Path) -> list[Certificate]:
    certificates = [read(path) for path in sorted((folder / PEERS).glob("*.pem"))]
    names = [certificate.name.casefold() for certificate in certificates]
    for certificate in certificates:
        if names.count(certificate.name.casefold()) > 1:
            raise CertificateError(
                f"{folder / PEERS} holds several certificates of {certificate.name!r}: "
                "leave the one that is valid"
            )
    return certificates


def _write(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file at once; nobody else can read it before it has its mode."""
    number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
