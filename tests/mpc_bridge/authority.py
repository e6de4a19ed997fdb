"""Certificates that `mpc_bridge certs` does not make: authorities', expired ones."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def issue(
    folder: Path,
    name: str,
    *,
    issuer: Path | None = None,
    ca: bool = False,
    days: tuple[float, float] = (-1, 30),
    usages: tuple[str, ...] = ("SERVER_AUTH", "CLIENT_AUTH"),
    curve: ec.EllipticCurve | None = None,
) -> Path:
    """Write `key.pem` and `certificate.pem`, signed by its own key or an issuer's."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, signed_by = key, subject
    if issuer is not None:
        data = (issuer / "key.pem").read_bytes()
        signer = serialization.load_pem_private_key(data, None)
        data = (issuer / "certificate.pem").read_bytes()
        signed_by = x509.load_pem_x509_certificate(data).subject
    now = datetime.datetime.now(datetime.UTC)
    start, end = (now + datetime.timedelta(days=each) for each in days)
    purposes = [getattr(x509.ExtendedKeyUsageOID, each) for each in usages]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .sign(signer, hashes.SHA256())
    )
    folder.mkdir(parents=True, mode=0o700)
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").touch(mode=0o600)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder
