"""Servers on loopback that the fleet's tests share."""

import uuid

import pytest

from tests.helpers.s3_server import Proxy, Server, set_environment


@pytest.fixture(scope="session")
def s3_server():
    """An S3 server in a process of its own."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def bucket(s3_server):
    """The name of a new bucket."""
    return s3_server.make_bucket(f"b-{uuid.uuid4().hex}")


@pytest.fixture
def proxy(s3_server, monkeypatch):
    """A proxy before the server, to which the environment points."""
    from mala_context.archive.remote import bucket as module

    made = Proxy(s3_server.port)
    set_environment(made.port, monkeypatch.setenv)
    monkeypatch.setattr(module, "_open", {})
    yield made
    made.close()
