"""One party's certificate: read, and checked by itself."""

from __future__ import annotations

import dataclasses
import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ._toml import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

CERTIFICATE = "certificate.pem"
_LONGEST_NAME = 64  # X.509's bound of a common name, in characters
_LONGEST_FILE = 1 << 16  # bytes


class CertificateError(ConfigError):
    """An unusable certificate, key or folder; the message names the remedy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """A party's certificate.

    Attributes:
        name: Of the party.
        fingerprint: SHA-256 of the certificate, 32 bytes in hexadecimal with colons.
        start, end: When it is valid, UTC.
        path: The file it was read from.
        pem: The certificate as text.
    """

    name: str
    fingerprint: str
    start: datetime.datetime
    end: datetime.datetime
    path: Path
    pem: str = dataclasses.field(repr=False)


def read(path: str | Path) -> Certificate:
    """Read a certificate, and check that it can be trusted by itself.

    Raises:
        CertificateError: If it is none, or not one that `make` writes: on an elliptic
            curve, signed by itself, not an authority's, for servers and clients.
    """
    require()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST_FILE)
    except OSError as error:
        raise CertificateError(f"{path} can't be read: {error.strerror}") from None
    if b"PRIVATE KEY" in data:
        raise CertificateError(
            f"{path} holds a private key, which must not travel: its owner must make a "
            f"new one, and send {CERTIFICATE} only"
        )
    try:
        (certificate,) = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise CertificateError(f"{path} is not one certificate in PEM") from None
    if rule := _broken(certificate):
        raise CertificateError(
            f"{path} {rule}: python -m mpc_bridge certs own makes one that can be used"
        )
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    try:
        name = check_name(str(names[0].value) if len(names) == 1 else "")
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None
    return Certificate(
        name=name,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        start=certificate.not_valid_before_utc,
        end=certificate.not_valid_after_utc,
        path=path,
        pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
    )


def days_left(certificate: Certificate) -> int:
    """Return the whole days before a certificate ends; negative if it has."""
    return (certificate.end - utc_now()).days


def same_fingerprint(one: str, other: str) -> bool:
    """Return whether two texts are the same full fingerprint."""
    plain = [re.sub(r"[:\s]", "", text).lower() for text in (one, other)]
    return plain[0] == plain[1] and re.fullmatch("[0-9a-f]{64}", plain[0]) is not None


def check_name(name: str) -> str:
    """Return a party's name.

    Raises:
        CertificateError: If it is not 1 to 64 printable characters, or begins or ends
            with a space.
    """
    if (
        not isinstance(name, str)
        or not 1 <= len(name) <= _LONGEST_NAME
        or not name.isprintable()
        or name != name.strip()
        or not slug(name)
    ):
        raise CertificateError(
            f"a party's name must be 1 to {_LONGEST_NAME} printable characters, with a "
            f"letter or digit and no space at its ends, got {name!r:.99}"
        )
    return name


def check_dates(one: Certificate) -> None:
    """Check that a certificate is valid now.

    Raises:
        CertificateError: If it is not yet, or no longer.
    """
    today = utc_now()
    if today < one.start:
        raise CertificateError(
            f"{one.path} is valid from {one.start:%Y-%m-%d %H:%M} UTC on, and here it "
            f"is {today:%Y-%m-%d %H:%M}: check this machine's clock"
        )
    if today > one.end:
        raise CertificateError(
            f"{one.path} of {one.name!r} ended on {one.end:%Y-%m-%d %H:%M} UTC: "
            f"{renewal(one)}"
        )


def renewal(one: Certificate) -> str:
    """Describe how to replace an expiring certificate."""
    if one.path.name == CERTIFICATE:
        return (
            "python -m mpc_bridge certs own --force makes a new one, which the others "
            "must trust"
        )
    return f"ask {one.name!r} for a new one, and python -m mpc_bridge certs trust it"


def _broken(found: x509.Certificate) -> str | None:
    """Return the rule of `read` that a certificate breaks."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        key = found.public_key()
        constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.key_size < 256:
            return "has no key on a curve of at least 256 bits"
        if found.issuer != found.subject:
            return "was issued by an authority, and the link can't pin such a one"
        found.verify_directly_issued_by(found)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        return f"is not signed by its own key, or incomplete ({type(error).__name__})"
    if constraints.value.ca:
        return "is an authority's, and could vouch for others"
    needed = {
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    }
    if not needed <= set(usage.value):
        return "is not for servers and clients both"
    return None


def slug(name: str) -> str:
    """Return a name as a part of a file's."""
    return re.sub(r"\W+", "-", name.casefold()).strip("-_")


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def require() -> None:
    """Raise an ImportError that names the package if `cryptography` is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "certificates need cryptography: pip install 'jaxsel[spu]'"
        ) from error
