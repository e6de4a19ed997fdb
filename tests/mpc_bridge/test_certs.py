"""Certificates: made, trusted, loaded, and every way in which they can be wrong."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

pytest.importorskip("cryptography")

from authority import issue
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from mpc_bridge import _certs
from mpc_bridge.__main__ import main
from mpc_bridge._certificate import CertificateError, read, same_fingerprint
from mpc_bridge.engines.spu import _tls

MODEL, DATA = "Model Owner GmbH", "Data Owner AG"


@pytest.fixture
def folder(tmp_path):
    """A folder of the model owner, who trusts the data owner."""
    folders = _certs.make_all(tmp_path / "certs", [MODEL, DATA])
    return folders[MODEL]


def mode(path):
    return path.stat().st_mode & 0o777


def test_makes_a_key_that_only_its_owner_reads(tmp_path):
    old = os.umask(0)
    try:
        made = _certs.make(tmp_path / "deep" / "certs", MODEL)
    finally:
        os.umask(old)
    folder = tmp_path / "deep" / "certs"
    assert mode(folder) == 0o700
    assert mode(folder / "key.pem") == 0o600
    assert sorted(each.name for each in folder.iterdir()) == [
        "certificate.pem",
        "key.pem",
    ]
    assert (made.name, made.path) == (MODEL, folder / "certificate.pem")
    assert "PRIVATE" not in made.pem
    assert _certs.days_left(made) == 89


def test_openssl_reads_the_same(folder):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    path = str(folder / "certificate.pem")
    asked = ["-fingerprint", "-sha256", "-subject", "-ext", "basicConstraints"]
    found = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", *asked],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert read(path).fingerprint in found
    assert f"CN = {MODEL}" in found or f"CN={MODEL}" in found
    assert "CA:FALSE" in found
    # Trusted by itself, for both purposes.
    for purpose in ("sslserver", "sslclient"):
        subprocess.run(
            ["openssl", "verify", "-purpose", purpose, "-CAfile", path, path],
            capture_output=True,
            check=True,
        )


def test_key_is_on_a_curve_that_tls_takes(folder):
    found = x509.load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
    key = found.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert found.serial_number.bit_length() > 64


def test_replaces_nothing_without_force(folder):
    before = (folder / "key.pem").read_bytes()
    with pytest.raises(CertificateError, match="key.pem is there: --force"):
        _certs.make(folder, MODEL)
    assert (folder / "key.pem").read_bytes() == before
    _certs.make(folder, MODEL, force=True)
    assert (folder / "key.pem").read_bytes() != before
    assert [one.name for one in _certs.load(folder).peers] == [DATA]


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        _certs.make(tmp_path / "certs", MODEL)
    assert list((tmp_path / "certs").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", " a", "a ", "a\nb", "a\x00", "x" * 65, "--", "\u202eb"]
)
def test_names_are_checked(tmp_path, name):
    with pytest.raises(CertificateError, match="name must be 1 to 64 printable"):
        _certs.make(tmp_path / "certs", name)
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize(
    "name", ["Größte Bank", "株式会社", "x" * 64, 'O\'Neil & Co., "A"']
)
def test_any_company_has_a_name(tmp_path, name):
    folders = _certs.make_all(tmp_path, [name, "B"])
    assert _certs.load(folders["B"]).peers[0].name == name
    assert _certs.load(folders[name]).own.name == name


@pytest.mark.parametrize("days", [0, -1, 826, 1.5, True])
def test_days_are_checked(tmp_path, days):
    with pytest.raises(CertificateError, match="days must be 1 to 825"):
        _certs.make(tmp_path / "certs", MODEL, days=days)


@pytest.mark.parametrize("names", [["A"], ["A", "a"], ["A B", "A-B"], []])
def test_parties_of_one_machine_differ(tmp_path, names):
    with pytest.raises(CertificateError, match="two or more different names"):
        _certs.make_all(tmp_path / "certs", names)
    assert not (tmp_path / "certs").exists()


def test_three_parties_trust_each_other(tmp_path):
    folders = _certs.make_all(tmp_path, ["A", "B", "C"])
    found = _certs.load(folders["B"], ["C", "A"])
    assert [one.name for one in found.peers] == ["C", "A"]
    assert len(_certs.load(folders["C"]).peers) == 2
    with pytest.raises(CertificateError, match="must be parties that are trusted"):
        _certs.load(folders["B"], ["A", "D"])


def test_trust_needs_the_whole_fingerprint(tmp_path):
    _certs.make(tmp_path / "own", MODEL)
    other = _certs.make(tmp_path / "other", DATA)
    wrong = other.fingerprint[:-1] + ("0" if other.fingerprint[-1] != "0" else "1")
    for text in ("", other.fingerprint[:40], wrong):
        with pytest.raises(CertificateError, match=other.fingerprint):
            _certs.trust(tmp_path / "own", other.path, fingerprint=text)
    assert not (tmp_path / "own" / "peers").exists()
    text = other.fingerprint.replace(":", "").lower()
    kept = _certs.trust(tmp_path / "own", other.path, fingerprint=text)
    assert kept.fingerprint == other.fingerprint
    assert _certs.load(tmp_path / "own").peers == (kept,)
    # Again: nothing changes.
    assert _certs.trust(tmp_path / "own", other.path, fingerprint=text) == kept


def test_an_empty_fingerprint_is_none():
    assert not same_fingerprint("", "")
    assert not same_fingerprint("ab" * 31, "ab" * 31)
    assert same_fingerprint("aB" * 32, "Ab" * 32)


def test_another_certificate_of_a_name_needs_force(folder, tmp_path):
    new = _certs.make(tmp_path / "new", DATA.upper())
    with pytest.raises(CertificateError, match="is another certificate of.*--force"):
        _certs.trust(folder, new.path, fingerprint=new.fingerprint)
    _certs.trust(folder, new.path, fingerprint=new.fingerprint, force=True)
    (peer,) = _certs.load(folder).peers
    assert peer.fingerprint == new.fingerprint


def test_own_certificate_and_name_are_not_a_peers(folder, tmp_path):
    own = read(folder / "certificate.pem")
    with pytest.raises(CertificateError, match="this party's own certificate"):
        _certs.trust(folder, own.path, fingerprint=own.fingerprint)
    twin = _certs.make(tmp_path / "twin", MODEL)
    with pytest.raises(CertificateError, match="this party's own name"):
        _certs.trust(folder, twin.path, fingerprint=twin.fingerprint)


def test_a_certificate_of_an_authority_is_refused(folder, tmp_path):
    authority = issue(tmp_path / "authority", "authority", ca=True)
    party = issue(tmp_path / "party", "party", issuer=authority)
    for each, words in (
        (authority, "could vouch for others"),
        (party, "by an authority"),
    ):
        with pytest.raises(CertificateError, match=words):
            _certs.trust(folder, each / "certificate.pem", fingerprint="")


def test_a_name_that_was_issued_by_its_like_is_refused(folder, tmp_path):
    # Issuer and subject are equal, and the signature is another key's.
    other = issue(tmp_path / "other", "A")
    forged = issue(tmp_path / "forged", "A", issuer=other)
    with pytest.raises(CertificateError, match="not signed by its own key"):
        read(forged / "certificate.pem")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"usages": ("SERVER_AUTH",)}, "servers and clients both"),
        ({"curve": ec.SECP192R1()}, "curve of at least 256 bits"),
    ],
)
def test_certificates_for_something_else_are_refused(tmp_path, options, words):
    made = issue(tmp_path / "made", "A", **options)
    with pytest.raises(CertificateError, match=words):
        read(made / "certificate.pem")


def test_files_that_are_no_certificate_are_refused(folder, tmp_path):
    for data in (b"", b"abc", bytes(1000), b"-----BEGIN CERTIFICATE-----\nAAAA\n"):
        (tmp_path / "x.pem").write_bytes(data)
        with pytest.raises(CertificateError, match="is not one certificate in PEM"):
            read(tmp_path / "x.pem")
    two = 2 * (folder / "certificate.pem").read_text()
    (tmp_path / "x.pem").write_text(two)
    with pytest.raises(CertificateError, match="is not one certificate"):
        read(tmp_path / "x.pem")
    with pytest.raises(CertificateError, match="can't be read: No such file"):
        read(tmp_path / "missing.pem")
    both = (folder / "certificate.pem").read_text() + (folder / "key.pem").read_text()
    (tmp_path / "x.pem").write_text(both)
    with pytest.raises(CertificateError, match="holds a private key"):
        read(tmp_path / "x.pem")


def test_load_says_what_is_missing(folder, tmp_path):
    with pytest.raises(CertificateError, match="key.pem is missing.*certs own"):
        _certs.load(tmp_path / "nowhere")
    _certs.make(tmp_path / "alone", MODEL)
    with pytest.raises(CertificateError, match="holds no certificate.*certs trust"):
        _certs.load(tmp_path / "alone")


@pytest.mark.skipif(os.name != "posix", reason="modes")
@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("key.pem", 0o640, "mode 640, and others could read it: chmod 600"),
        ("key.pem", 0o604, "mode 604, and others could read it: chmod 600"),
        (".", 0o770, "mode 770, and others could change it: chmod 700"),
        ("peers", 0o722, "mode 722, and others could change it: chmod 700"),
    ],
)
def test_modes_are_checked(folder, name, given, words):
    (folder / name).chmod(given)
    with pytest.raises(CertificateError, match=words):
        _certs.load(folder)
    assert any(words in text for text in _certs.problems(folder))


def test_a_key_of_another_certificate_is_refused(folder, tmp_path):
    _certs.make(tmp_path / "other", MODEL)
    shutil.copy(tmp_path / "other" / "key.pem", folder / "key.pem")
    with pytest.raises(CertificateError, match="does not belong to"):
        _certs.load(folder)
    (folder / "key.pem").write_text("no key")
    with pytest.raises(CertificateError, match="is no private key"):
        _certs.load(folder)


@pytest.mark.parametrize(
    ("days", "words"), [((-3, -1), "ended on"), ((1, 3), "check this machine's clock")]
)
def test_dates_are_checked(folder, tmp_path, days, words):
    other = issue(tmp_path / "other", "Other", days=days)
    found = read(other / "certificate.pem")
    with pytest.raises(CertificateError, match=words):
        _certs.trust(folder, found.path, fingerprint=found.fingerprint)
    # Of a peer, and of its own, that were trusted once.
    shutil.copy(found.path, folder / "peers" / "other.pem")
    with pytest.raises(CertificateError, match=words):
        _certs.load(folder, ["Other"])
    assert _certs.load(folder, [DATA]).peers[0].name == DATA
    shutil.copytree(folder / "peers", other / "peers")
    with pytest.raises(CertificateError, match=words):
        _certs.load(other)


def test_two_certificates_of_a_name_are_refused(folder, tmp_path):
    _certs.make(tmp_path / "other", DATA)
    shutil.copy(tmp_path / "other" / "certificate.pem", folder / "peers" / "2.pem")
    with pytest.raises(
        CertificateError, match="several certificates of 'Data Owner AG'"
    ):
        _certs.load(folder)


def test_python_accepts_as_many_as_there_are_peers(folder):
    # And none of the system's authorities.
    stats = _tls.context(_certs.load(folder)).cert_store_stats()
    assert stats == {"x509": 1, "crl": 0, "x509_ca": 0}


def test_command_takes_two_companies_from_nothing_to_trust(tmp_path, capsys):
    folders = {name: tmp_path / name for name in "ab"}
    for name, folder in folders.items():
        args = ["--folder", str(folder), "--name", f"Company {name}", "--days", "30"]
        assert main(["certs", "own", *args]) == 0
        assert "read them the fingerprint" in capsys.readouterr().out
        assert main(["certs", "show", "--folder", str(folder)]) == 1
        assert "holds no certificate" in capsys.readouterr().out
    for name, folder in folders.items():
        other = str(folders["b" if name == "a" else "a"] / "certificate.pem")
        args = ["certs", "trust", other, "--folder", str(folder)]
        assert main(args) == 2
        said = capsys.readouterr().err
        assert "compare it with what" in said
        assert main([*args, "--fingerprint", read(other).fingerprint]) == 0
        assert main(["certs", "show", "--folder", str(folder)]) == 0
        shown = capsys.readouterr().out
        assert read(other).fingerprint in shown
        assert "Company a" in shown
        assert "Company b" in shown
        assert "29 days left" in shown


def test_command_makes_all_for_trials(tmp_path, capsys):
    args = ["certs", "make", "--folder", str(tmp_path), "--party", "A", "--party", "B"]
    assert main(args) == 0
    assert "own: A, until" in capsys.readouterr().out
    assert _certs.load(tmp_path / "b").peers[0].name == "A"
    assert main(args) == 2
    assert main([*args, "--force", "--days", "10"]) == 0
    capsys.readouterr()
    assert main(["certs", "show", "--folder", str(tmp_path / "a")]) == 1
    assert "ends in 9 days" in capsys.readouterr().out


def test_a_name_is_not_printed_raw(folder, tmp_path, capsys):
    bad = issue(tmp_path / "bad", "evil\x1b[31m")
    args = ["--folder", str(folder), "--fingerprint", "0"]
    assert main(["certs", "trust", str(bad / "certificate.pem"), *args]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["certificate.pem", "peers", "peers/*.pem", "."])
@pytest.mark.parametrize("bits", [0o020, 0o002])
def test_what_others_could_change_is_refused(folder, name, bits):
    """Whoever can write a peer's certificate can put its own in its place."""
    (path,) = folder.glob(name) if "*" in name else [folder / name]
    path.chmod(mode(path) | bits)
    with pytest.raises(CertificateError, match=f"{path} has mode .* could change it: "):
        _certs.load(folder)
    assert "chmod" in _certs.problems(folder)[0]
    path.chmod(0o700 if path.is_dir() else 0o644)
    _certs.load(folder)


def test_what_belongs_to_another_user_is_refused(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(folder).st_uid + 1)
    if os.stat(folder).st_uid:
        with pytest.raises(CertificateError, match="belongs to another user, number"):
            _certs.load(folder)
    else:
        _certs.load(folder)  # of root, who can change all files anyway
        (path,) = (folder / "peers").glob("*.pem")
        os.chown(path, 12345, -1)
        with pytest.raises(CertificateError, match="another user, number 12345"):
            _certs.load(folder)
