"""The loopback server alone: sockets, threads, clients that hang up, a quick end."""

import contextlib
import gc
import http.client
import json
import socket
import threading
import time
import warnings

import pytest

from mala_context.testing.server import LoopbackServer


class Service:
    """Answers as its function says."""

    def __init__(self, handle):
        self.handle = handle


@contextlib.contextmanager
def serving(handle):
    server = LoopbackServer(Service(handle))
    server.start()
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def connected(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        yield connection
    finally:
        connection.close()


def echo(exchange, path, headers, body):
    exchange.send_json(200, {"path": path, "kind": headers.get("x-kind"), "body": body}, {"x-more": "yes"})


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("scripted-api-")]


def test_a_post_reaches_the_service_and_the_connection_stays_open():
    with serving(echo) as server, connected(server) as connection:
        for n in range(3):
            connection.request("POST", "/v1/x?beta=true", json.dumps({"n": n}), {"X-Kind": "k"})
            response = connection.getresponse()
            assert response.getheader("x-more") == "yes"
            assert json.load(response) == {"path": "/v1/x", "kind": "k", "body": {"n": n}}


def test_a_stream_arrives_in_pieces_as_they_are_sent():
    second = threading.Event()

    def handle(exchange, path, headers, body):
        exchange.start_stream({})
        exchange.send_chunk(b"one")
        exchange.wait(second)
        exchange.send_chunk(b"two")
        exchange.end_stream()

    with serving(handle) as server, connected(server) as connection:
        connection.request("POST", "/", "{}")
        response = connection.getresponse()
        assert response.read(3) == b"one"
        second.set()
        assert response.read() == b"two"


@pytest.mark.parametrize("body", ["not json", "[1]", "3"])
def test_a_body_that_is_no_object_is_refused(body):
    with serving(echo) as server, connected(server) as connection:
        connection.request("POST", "/", body)
        response = connection.getresponse()
        assert response.status == 400
        assert json.load(response)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_other_methods_find_nothing(method):
    with serving(echo) as server, connected(server) as connection:
        for _ in range(2):
            connection.request(method, "/")
            response = connection.getresponse()
            response.read()
            assert response.status == 404


def test_waiting_for_seconds_ends_by_itself():
    took = []

    def handle(exchange, path, headers, body):
        start = time.monotonic()
        exchange.wait(None, 0.05)
        took.append(time.monotonic() - start)
        exchange.send_json(200, {}, {})

    with serving(handle) as server, connected(server) as connection:
        connection.request("POST", "/", "{}")
        connection.getresponse().read()
    assert 0.05 <= took[0] < 2


def test_a_client_that_hangs_up_ends_the_wait(capfd):
    ended = threading.Event()

    def handle(exchange, path, headers, body):
        try:
            exchange.wait(threading.Event())
        finally:
            ended.set()

    with serving(handle) as server:
        client = socket.create_connection(("127.0.0.1", server.server_port))
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        client.close()
        assert ended.wait(5)
    assert capfd.readouterr().err == ""


def test_a_client_that_resets_in_mid_stream_is_passed_over(capfd):
    ended = threading.Event()

    def handle(exchange, path, headers, body):
        try:
            exchange.start_stream({})
            while True:
                exchange.send_chunk(b"x" * 65536)
        finally:
            ended.set()

    with serving(handle) as server:
        client = socket.create_connection(("127.0.0.1", server.server_port))
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        client.recv(10)
        client.close()
        assert ended.wait(5)
    assert capfd.readouterr().err == ""


def test_a_fault_of_the_service_is_told(capfd):
    def handle(exchange, path, headers, body):
        raise RuntimeError("broken service")

    with serving(handle) as server, connected(server) as connection:
        connection.request("POST", "/", "{}")
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()
    assert "broken service" in capfd.readouterr().err


def time_to_close():
    """Close a server that has a held answer and an idle connection; return the seconds that it took."""
    holding = threading.Event()

    def handle(exchange, path, headers, body):
        exchange.start_stream({})
        exchange.send_chunk(b"one")
        holding.set()
        exchange.wait(threading.Event())

    with serving(handle) as server, connected(server) as held, connected(server) as idle:
        held.request("POST", "/", "{}")
        idle.connect()
        assert holding.wait(5)
        start = time.monotonic()
        server.close()
        return time.monotonic() - start


def test_closing_is_quick_whatever_is_open_and_leaves_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        fastest = min(time_to_close() for _ in range(3))  # the machine may be busy with something else once
        gc.collect()
    assert fastest < 0.2
    assert own_threads() == []


def test_several_servers_run_at_once():
    with serving(echo) as one, serving(echo) as two:
        assert one.url != two.url
        for server in (one, two):
            with connected(server) as connection:
                connection.request("POST", "/", "{}")
                assert connection.getresponse().status == 200
