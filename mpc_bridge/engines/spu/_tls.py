"""TLS between parties with Python's `ssl`: accepted peers, explained errors."""

from __future__ import annotations

import hashlib
import socket
import ssl

from mpc_bridge._certificate import Certificate, same_fingerprint
from mpc_bridge._certs import Credentials
from mpc_bridge._handshake import SessionError

from ._door import OUT_OF_FILES, no_files_left


class PeerError(SessionError):
    """A peer that is not the right one, or refuses: waiting would not help."""


class RefusedError(PeerError):
    """A peer that ends the connection once it has seen this party's certificate."""


class NotThereError(SessionError):
    """Nobody answers at a peer's address: it may start later."""


class EndedError(NotThereError):
    """A peer's address answers, and ends the connection: its port may be crowded."""


def context(credentials: Credentials, *, server: bool = False) -> ssl.SSLContext:
    """Return TLS 1.3 that accepts the certificates of the peers, and nothing else."""
    if not credentials.peers:
        raise ValueError("credentials must have one peer or more, got none")
    kind = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    settings = ssl.SSLContext(kind)
    settings.check_hostname = False  # the certificate itself is compared
    settings.verify_mode = ssl.CERT_REQUIRED
    settings.minimum_version = ssl.TLSVersion.TLSv1_3
    settings.load_cert_chain(credentials.own.path, credentials.key)
    settings.load_verify_locations(
        cadata="".join(peer.pem for peer in credentials.peers)
    )
    return settings


def shown_by(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Return the fingerprint of the certificate that a connected peer has shown."""
    return _fingerprint(connection.getpeercert(binary_form=True) or b"")


def explain(
    error: Exception, peer: Certificate, host: str, port: int, *, timeout: float
) -> SessionError:
    """Explain an error of a connection to a peer.

    A certificate that is not accepted is fetched once more, to say whose it is.
    """
    where = f"{peer.name!r} at {host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        shown = _fetch(host, port, timeout)
        accepted = same_fingerprint(_fingerprint(shown), peer.fingerprint)
        whose = (
            "it is the trusted one" if accepted else f"trusted is {peer.fingerprint}"
        )
        return PeerError(
            f"{where} shows a certificate that is not accepted "
            f"({error.verify_message}): {_describe(shown)}; {whose}"
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if "EOF" in reason:
            return EndedError(f"{where} ends the connection at once")
        if "ALERT" in reason:
            text = reason.lower().replace("_", " ")
            return PeerError(f"{where} refuses the handshake ({text})")
        return PeerError(f"{where} does not speak TLS")
    if isinstance(error, socket.gaierror):
        return PeerError(f"{where} can't be found: {error.strerror}")
    if isinstance(error, EOFError | ConnectionResetError | ConnectionAbortedError):
        return EndedError(f"{where} ends the connection at once")
    if isinstance(error, TimeoutError):
        return NotThereError(f"{where} does not answer")
    if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
        return NotThereError(no_files_left())
    text = getattr(error, "strerror", None) or type(error).__name__
    return NotThereError(f"{where} can't be reached: {text}")


def _fetch(host: str, port: int, timeout: float) -> bytes:
    """Return the certificate that an unaccepted peer shows, or b""."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=timeout) as plain,
            anybody.wrap_socket(plain) as wrapped,
        ):
            return wrapped.getpeercert(binary_form=True) or b""
    except OSError:
        return b""


def _describe(shown: bytes) -> str:
    """Return who a certificate says it is; nothing of it is printed raw."""
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(shown)
        subject = certificate.subject.rfc4514_string()
        dates = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except ValueError:
        return "no certificate that can be read"
    start, end = (f"{date:%Y-%m-%d %H:%M}" for date in dates)
    return f"{subject!a:.99}, valid from {start} to {end} UTC, {_fingerprint(shown)}"


def _fingerprint(der: bytes) -> str:
    return hashlib.sha256(der).digest().hex(":").upper()
