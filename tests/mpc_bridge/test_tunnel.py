"""The tunnel between parties: who gets through, who is refused, and with what words."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import socket
import ssl
import threading
import time
import warnings
from pathlib import Path

import pytest
from waits import PATIENCE

pytest.importorskip("cryptography")

import intruders
from authority import issue
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from ports import free_ports
from relay import Relay, echo_server

from mpc_bridge import _certs
from mpc_bridge._certificate import Certificate
from mpc_bridge._certs import Credentials
from mpc_bridge._handshake import SessionError
from mpc_bridge.engines.spu import _meet, _tls, _tunnel
from mpc_bridge.engines.spu._tls import PeerError
from mpc_bridge.engines.spu._tunnel import Tunnel

MODEL, DATA = "Model Owner GmbH", "Data Owner AG"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of two parties that trust each other."""
    made = _certs.make_all(tmp_path_factory.mktemp("certs"), [MODEL, DATA])
    return list(made.values())


@pytest.fixture
def parties():
    hosts = [f"127.0.0.1:{port}" for port in free_ports(2)]
    return list(zip((MODEL, DATA), hosts, strict=True))


def credentials(folder: Path, *peers: Certificate) -> Credentials:
    """Return credentials of any certificates, as a party that checks nothing has."""
    own = unchecked(folder)
    return Credentials(own=own, key=folder / "key.pem", peers=peers)


def unchecked(folder: Path, name: str = "") -> Certificate:
    """Return any certificate, with a name that it may not have."""
    pem = (folder / "certificate.pem").read_text()
    found = x509.load_pem_x509_certificate(pem.encode())
    return Certificate(
        name=name or found.subject.rfc4514_string().removeprefix("CN="),
        fingerprint=found.fingerprint(hashes.SHA256()).hex(":").upper(),
        start=found.not_valid_before_utc,
        end=found.not_valid_after_utc,
        path=folder / "certificate.pem",
        pem=pem,
    )


def engine(tunnel, rank):
    """Serve an engine that echoes, at a tunnel's own address."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(tunnel.hosts[rank].removeprefix("unix:"))
    server.listen()

    def serve():
        while server.fileno() >= 0:
            try:
                one, _ = server.accept()
            except OSError:  # closed, or no descriptor is left for the moment
                time.sleep(0.01)
                continue
            threading.Thread(target=echo, args=(one,), daemon=True).start()

    def echo(one):
        with one, contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                one.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    return server


def through(tunnel, rank, data=b"abc"):
    """Send to a peer's engine, and return what comes back."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(PATIENCE)
        one.connect(tunnel.hosts[rank].removeprefix("unix:"))
        one.sendall(data)
        got = b""
        while len(got) < len(data) and (piece := one.recv(1 << 16)):
            got += piece
        return got


@contextlib.contextmanager
def running(parties, *both):
    """Both tunnels of two credentials or folders."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Tunnel(
                    one if isinstance(one, Credentials) else _certs.load(one),
                    rank=rank,
                    parties=parties,
                    timeout=PATIENCE,
                )
            )
            for rank, one in enumerate(both)
        ]


@pytest.fixture
def alone(monkeypatch):
    """Let a party that ends wait for nobody: the others of the test have no meeting."""
    monkeypatch.setattr(_meet, "_LINGER", 0.2)


def meet(*tunnels, wait=10 * PATIENCE):
    """Let all meet at once; return what each has raised, or None, and the seconds."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(tunnels)) as pool:
        calls = [pool.submit(tunnel.meet, wait) for tunnel in tunnels]
        found = [call.exception() for call in calls]
    return found, time.monotonic() - start


def test_engines_reach_each_other_and_bytes_are_counted(folders, parties):
    data = bytes(range(256)) * 5000
    with running(parties, *folders) as (first, second), engine(second, 1):
        assert meet(first, second)[0] == [None, None]
        assert through(first, 1, data) == data
        assert first.sent == {1: len(data)} == first.received
        assert second.received == {0: len(data)} == second.sent
        assert first.failure == second.failure == ""


def test_engine_may_start_after_the_peer_has_sent(folders, parties):
    with running(parties, *folders) as (first, second):
        timer = threading.Timer(0.3, lambda: opened.append(engine(second, 1)))
        opened = []
        timer.start()
        assert through(first, 1) == b"abc"
        timer.join()
        opened[0].close()


def test_meet_waits_for_a_party_that_starts_later(folders, parties):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(
            Tunnel(_certs.load(folders[0]), rank=0, parties=parties)
        )

        def later():
            made = Tunnel(_certs.load(folders[1]), rank=1, parties=parties)
            stack.enter_context(made)
            made.meet(PATIENCE)

        timer = threading.Timer(0.5, later)
        timer.start()
        first.meet(PATIENCE)
        timer.join()


def test_meet_ends_when_nobody_comes(folders, parties):
    with Tunnel(_certs.load(folders[0]), rank=0, parties=parties) as first:
        with pytest.raises(SessionError, match="can't be reached: .*waited 0.5 s") as e:
            first.meet(0.5)
        assert not isinstance(e.value, PeerError)


def stranger(tmp_path, folders):
    """Of the right name, made the right way, and trusted by nobody."""
    _certs.make(tmp_path / "stranger", DATA)
    return tmp_path / "stranger"


def another_party(tmp_path, folders):
    """Trusted, but not for this session."""
    other = _certs.make(tmp_path / "other", "Other")
    _certs.trust(folders[0], other.path, fingerprint=other.fingerprint, force=True)
    return tmp_path / "other"


def expired(tmp_path, folders):
    return issue(tmp_path / "expired", DATA, days=(-3, -1))


def not_yet(tmp_path, folders):
    return issue(tmp_path / "not-yet", DATA, days=(1, 3))


def child(tmp_path, folders):
    """Issued by the key of the party that is trusted."""
    return issue(tmp_path / "child", DATA, issuer=folders[1])


@pytest.mark.parametrize(
    ("make", "trusted", "words"),
    [
        (stranger, False, "self-signed certificate.*Data Owner AG.*trusted is"),
        (another_party, False, "not accepted .*CN=Other.*trusted is"),
        (child, False, "not accepted .*trusted is"),
        (expired, True, "certificate has expired.*it is the trusted one"),
        (not_yet, True, "not yet valid.*it is the trusted one"),
    ],
)
@pytest.mark.every(3)
def test_wrong_certificates_are_refused_by_both_and_named(
    folders, parties, tmp_path, make, trusted, words
):
    folder = make(tmp_path, folders)
    mine = unchecked(folders[0])
    theirs = unchecked(folder if trusted else folders[1], DATA)
    wrong = credentials(folder, mine)
    right = credentials(folders[0], theirs)
    with running(parties, right, wrong) as (first, second), engine(first, 0):
        (one, other), seconds = meet(first, second)
        assert isinstance(one, PeerError)
        assert isinstance(other, PeerError)
        assert re.search(words, str(one))
        assert "does not accept this party's" in str(other)
        assert seconds < PATIENCE
        assert through(second, 0) == b""
        assert first.received == {1: 0}


def test_an_authority_of_the_peer_is_not_enough(folders, parties, tmp_path, alone):
    # Another party of one authority, where a party trusts the authority by mistake.
    authority = issue(tmp_path / "authority", DATA, ca=True)
    other = issue(tmp_path / "other", "Other", issuer=authority)
    right = credentials(folders[0], unchecked(authority))
    wrong = credentials(other, unchecked(folders[0]))
    with running(parties, right, wrong) as (first, second), engine(first, 0):
        with pytest.raises(PeerError, match="another party"):
            first.meet(PATIENCE)
        assert through(second, 0) == b""


@pytest.mark.left_out
def test_one_that_starts_late_hears_why_the_other_ends(folders, parties, tmp_path):
    """Whoever sees a wrong certificate first stays, until the other has seen it."""
    wrong = credentials(stranger(tmp_path, folders), unchecked(folders[0]))
    right = _certs.load(folders[0])
    with (
        Tunnel(right, rank=0, parties=parties) as first,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(first.meet, 10 * PATIENCE)
        time.sleep(1.5)
        start = time.monotonic()
        with (
            Tunnel(wrong, rank=1, parties=parties) as second,
            pytest.raises(PeerError, match="does not accept this party's"),
        ):
            second.meet(10 * PATIENCE)
        with pytest.raises(PeerError, match="not accepted"):
            waiting.result()
        assert time.monotonic() - start < PATIENCE


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    names = [MODEL, DATA, "Helper"]
    return [*_certs.make_all(tmp_path_factory.mktemp("three"), names).values()]


def trio(three, stack, folders=None, hellos=({}, {}, {}), seen=None):
    """Tunnels of three parties; `seen` are other addresses, of whom one can't tell."""
    hosts = [f"127.0.0.1:{port}" for port in free_ports(3)]
    made = []
    for rank, folder in enumerate(folders or three):
        names = [MODEL, DATA, "Helper"]
        places = list(zip(names, hosts, strict=True))
        for (who, of), port in (seen or {}).items():
            if who == rank:
                places[of] = (names[of], f"127.0.0.1:{port}")
        one = folder if isinstance(folder, Credentials) else _certs.load(folder)
        tunnel = Tunnel(one, rank=rank, parties=places, hello=hellos[rank])
        made.append(stack.enter_context(tunnel))
    return made


def test_three_meet(three):
    with contextlib.ExitStack() as stack:
        found, _ = meet(*trio(three, stack, hellos=[{"name": "a"}] * 3))
        assert found == [None] * 3


def test_a_third_party_that_one_does_not_trust_ends_all(three, tmp_path):
    other = _certs.make(tmp_path / "other", "Helper")
    mine = unchecked(three[0]), Certificate(**vars(other))
    with contextlib.ExitStack() as stack:
        wrong = [credentials(three[0], unchecked(three[1]), mine[1]), *three[1:]]
        (first, second, third), seconds = meet(*trio(three, stack, wrong), wait=100)
        # By itself, or from the helper that it has refused.
        assert re.search("'Helper' .*not accept", str(first))
        # From the one that refuses it, or by way of the other, who was told so.
        told = "does not accept this party's certificate|has ended: .*'Helper' .*certif"
        assert re.search(told, str(third))
        assert "has ended: " in str(second)  # it has found nothing wrong by itself
        assert "not accept" in str(second)
        assert seconds < 20


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"session.name": "sha256:b"}, "do not agree: session.name differs"),
        (
            {"version of jaxsel": "9"},
            "version of jaxsel: the (model|data) owner has '1', the .* '9'",
        ),
    ],
)
def test_hellos_that_differ_end_all_and_are_named(three, hello, words):
    same = {"session.name": "sha256:a", "version of jaxsel": "1"}
    with contextlib.ExitStack() as stack:
        tunnels = trio(three, stack, hellos=[same, same, same | hello])
        found, seconds = meet(*tunnels, wait=100)
    assert all(isinstance(error, PeerError) for error in found)
    for error in found:
        assert re.search(words, str(error))
        assert str(error).isprintable()
    assert seconds < 20


def test_a_version_without_this_meeting_is_named(folders, parties, alone):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_meet, "VERSION", b"jaxsel tunnel 1\n")
        old = Tunnel(_certs.load(folders[1]), rank=1, parties=parties)
    with (
        old,
        Tunnel(_certs.load(folders[0]), rank=0, parties=parties) as first,
        pytest.raises(PeerError, match="no party of this version of jaxsel"),
    ):
        first.meet(100)


def test_a_peer_that_reaches_us_and_is_not_reached_ends_all(three, monkeypatch):
    monkeypatch.setattr(_tunnel, "_ONE_WAY", 1.0)
    with contextlib.ExitStack() as stack:
        tunnels = trio(three, stack, seen={(0, 2): free_ports(1)[0]})
        (first, second, third), seconds = meet(*tunnels, wait=100)
    assert "though it reaches this party: its address" in str(first)
    for other in (second, third):
        assert "'Model Owner GmbH' has ended: 'Helper' at" in str(other)
    assert seconds < 20


def test_a_reason_is_one_line_of_limited_length(folders, parties, alone):
    with running(parties, *folders) as (first, second):
        board = second._board
        second._call(board.end("\x1b[31m" + "x" * 10_000 + "\nready\n", stay=False))
        with pytest.raises(PeerError, match="has ended: .*xxx") as raised:
            first.meet(100)
        assert str(raised.value).isprintable()
        assert len(str(raised.value)) < 700


def test_a_port_of_another_program_is_named(folders, parties, alone):
    server, port = echo_server()
    parties = [parties[0], (DATA, f"127.0.0.1:{port}")]
    with (
        server,
        Tunnel(_certs.load(folders[0]), rank=0, parties=parties) as first,
        pytest.raises(PeerError, match="'Data Owner AG' at .* does not speak TLS"),
    ):
        first.meet(5)


def test_a_host_that_is_unknown_is_named(folders, parties, alone):
    parties = [parties[0], (DATA, "nowhere.invalid:1234")]
    with (
        Tunnel(_certs.load(folders[0]), rank=0, parties=parties) as first,
        pytest.raises(PeerError, match="can't be found"),
    ):
        first.meet(5)


def test_a_port_that_is_taken_is_named(folders, parties):
    with (
        Tunnel(_certs.load(folders[0]), rank=0, parties=parties),
        pytest.raises(SessionError, match="can't listen at 127.0.0.1:.* in use"),
    ):
        Tunnel(_certs.load(folders[0]), rank=0, parties=parties)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"])
def test_only_tls_1_3_is_spoken(folders, parties, version):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folders[0] / "certificate.pem", folders[0] / "key.pem")
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    host, port = parties[1][1].split(":")
    with (
        Tunnel(_certs.load(folders[1]), rank=1, parties=parties),
        socket.create_connection((host, int(port)), timeout=PATIENCE) as plain,
    ):
        if version == "TLSv1_3":
            with context.wrap_socket(plain) as wrapped:
                assert wrapped.version() == "TLSv1.3"
                assert wrapped.recv(6) == b"jaxsel"
        else:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(plain)


def test_intruders_reach_no_engine(folders, parties, tmp_path):
    port = int(parties[1][1].split(":")[1])
    outsider = stranger(tmp_path, folders)
    with running(parties, *folders) as (first, second), engine(second, 1):
        for _ in intruders.attack("127.0.0.1", port, stranger=outsider):
            assert through(first, 1) == b"abc"
        assert second.received == {0: 3 * 13}


@pytest.mark.left_out
def test_cut_connections_are_made_again(folders, parties):
    host, port = parties[1][1].split(":")
    with Relay((host, int(port))) as relay:
        seen = [parties[0], (DATA, f"127.0.0.1:{relay.address[1]}")]
        with (
            Tunnel(_certs.load(folders[0]), rank=0, parties=seen) as first,
            Tunnel(_certs.load(folders[1]), rank=1, parties=parties) as second,
            engine(second, 1),
        ):
            assert through(first, 1) == b"abc"
            relay.cut(refuse=True)
            with contextlib.suppress(OSError):
                assert through(first, 1) == b""
            assert "ends the connection" in first.failure
            relay.resume()
            assert through(first, 1) == b"abc"


def test_nothing_stays_behind(folders, parties):
    before = threading.active_count()
    with running(parties, *folders) as (first, second), engine(second, 1):
        through(first, 1)
        places = [
            Path(tunnel.hosts[0].removeprefix("unix:")) for tunnel in (first, second)
        ]
        assert all(place.parent.stat().st_mode & 0o777 == 0o700 for place in places)
    assert not any(place.parent.exists() for place in places)
    assert threading.active_count() <= before + 2  # the echo's own
    first.close()


@pytest.mark.parametrize("address", ["host", "host:", ":1", "host:65536", "host:-1"])
def test_addresses_are_checked(folders, parties, address):
    with pytest.raises(ValueError, match="must be 'host:port', got"):
        Tunnel(_certs.load(folders[0]), rank=0, parties=[parties[0], (DATA, address)])


def test_a_peer_must_be_trusted(folders, parties):
    with pytest.raises(ValueError, match=r"parties\[1\] must be one of .* got 'X'"):
        Tunnel(_certs.load(folders[0]), rank=0, parties=[parties[0], ("X", "h:1")])


def test_without_peers_nobody_is_accepted(folders):
    with pytest.raises(ValueError, match="one peer or more"):
        _tls.context(credentials(folders[0]))
