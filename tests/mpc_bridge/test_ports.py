"""Ports of loopback that are kept for parties until they listen."""

import socket
import sys

import pytest
from sessions import config_of
from waits import PATIENCE

from mpc_bridge import _local
from mpc_bridge._ports import reserved_addresses
from mpc_bridge._read_config import read_config

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux")


def place(address):
    host, port = address.split(":")
    return host, int(port)


def test_a_party_can_listen_at_each():
    with reserved_addresses(3) as addresses:
        assert len(set(addresses)) == 3
        for address in addresses:
            with (
                socket.create_server(place(address)) as server,
                socket.create_connection(place(address)) as one,
                server.accept()[0] as other,
            ):
                one.sendall(b"word")
                assert other.recv(4, socket.MSG_WAITALL) == b"word"


def test_nobody_listens_there_yet():
    with reserved_addresses(1) as [address], pytest.raises(ConnectionRefusedError):
        socket.create_connection(place(address), timeout=PATIENCE)


@on_linux
def test_others_are_not_given_the_port_until_the_end():
    with (
        socket.socket() as other,
        reserved_addresses(1) as [address],
        pytest.raises(OSError, match="in use"),
    ):
        other.bind(place(address))
    with socket.socket() as other:
        other.bind(place(address))


@on_linux
def test_a_local_run_keeps_the_rendezvous(files, monkeypatch):
    class Started(Exception):
        pass

    def start(role, config, options, **how):
        rendezvous = read_config(config).session.rendezvous
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(place(rendezvous.removeprefix("tcp://")))
        raise Started

    monkeypatch.setattr(_local, "_Role", start)
    with pytest.raises(Started):
        _local.run_local(config_of(files, "kept"), notice=False)


def test_where_ports_cannot_be_held_they_are_free(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with reserved_addresses(2) as addresses:
        for address in addresses:
            with socket.socket() as party:
                party.bind(place(address))
