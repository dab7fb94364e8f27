"""The loopback HTTP server: threads, sockets, chunked streams. It knows nothing of scripts.

Everything that can outlive a test is tracked: the thread that accepts, one thread a connection, each open socket. On
`close` the sockets are shut down, which ends whatever their threads are blocked in, and all threads are joined.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

POLL = 0.01
"""Seconds between two looks at whether a wait is over; bounds the time that closing takes."""


_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT if hasattr(socket, "MSG_DONTWAIT") else 0
"""Flags to look for a connection's end without reading or waiting; where they are missing, a wait is not cut short."""


class Service(Protocol):
    """What answers the requests of a `LoopbackServer`."""

    def handle(self, exchange: Exchange, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Answer one POST through `exchange`, on a thread of its own; a ConnectionError means the client is gone."""


class Exchange:
    """One answer going out."""

    def __init__(self, handler: _Handler, stopping: threading.Event) -> None:
        self._handler = handler
        self._stopping = stopping

    def send_json(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        """Send a whole response."""
        data = json.dumps(body, ensure_ascii=False).encode()
        self._head(status, {"content-type": "application/json", "content-length": str(len(data)), **headers})
        self._write(data)

    def start_stream(self, headers: Mapping[str, str]) -> None:
        """Send the head of a stream of events; go on with `send_chunk` and finish with `end_stream`."""
        fixed = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        self._head(200, {**fixed, "cache-control": "no-cache", **headers})

    def send_chunk(self, data: bytes) -> None:
        """Send a part of a stream at once."""
        self._write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """Finish a stream."""
        self._write(b"0\r\n\r\n")

    def wait(self, event: threading.Event | None, seconds: float | None = None) -> None:
        """Wait for the event, at most `seconds`; raises ConnectionError if the client or the server goes first."""
        end = None if seconds is None else time.monotonic() + seconds
        while not (event is not None and event.is_set()):
            left = POLL if end is None else min(POLL, end - time.monotonic())
            if left <= 0:
                return
            if self._stopping.wait(left) or self._client_is_gone():
                raise ConnectionAbortedError("the answer is no longer wanted")

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()

    def _write(self, data: bytes) -> None:
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def _client_is_gone(self) -> bool:
        if not _PEEK:
            return False
        try:
            seen: bytes = self._handler.connection.recv(1, _PEEK)
        except BlockingIOError:
            return False
        return not seen


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # the head and the body of a small answer leave in one segment
    server: LoopbackServer

    def do_POST(self) -> None:
        """Read one request and hand it to the service."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        data = self.rfile.read(int(headers.get("content-length") or 0))
        exchange = Exchange(self, self.server.stopping)
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            error = {"type": "invalid_request_error", "message": "the body is no JSON object"}
            exchange.send_json(400, {"type": "error", "error": error}, {})
            return
        self.server.service.handle(exchange, self.path.partition("?")[0], headers, body)

    def do_GET(self) -> None:
        """Answer that there is nothing here."""
        error = {"type": "not_found_error", "message": "this server answers /v1/messages only"}
        Exchange(self, self.server.stopping).send_json(404, {"type": "error", "error": error}, {})

    def do_HEAD(self) -> None:
        """Answer a probe without a body."""
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class names it so
        """Say nothing on stderr."""


class LoopbackServer(ThreadingHTTPServer):
    """An HTTP server on a free port of 127.0.0.1; `start` it, and `close` it from the same thread."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, service: Service) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._workers: set[threading.Thread] = set()
        self._accepting = threading.Thread(
            target=self.serve_forever, args=(POLL,), name=f"scripted-api-{self.server_port}", daemon=True
        )

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        """Begin to accept connections."""
        self._accepting.start()

    def close(self) -> None:
        """Drop every connection and wait for the threads; waits end, and unread requests are lost."""
        self.stopping.set()
        self.shutdown()
        self.server_close()
        with self._lock:
            connections, threads = list(self._open), list(self._workers)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in (self._accepting, *threads):
            thread.join(timeout=5)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection on a thread that `close` can wait for."""
        thread = threading.Thread(
            target=self._serve,
            args=(request, client_address),
            name=f"scripted-api-{self.server_port}-connection",
            daemon=True,
        )
        with self._lock:
            self._open.add(request)
            self._workers.add(thread)
        thread.start()

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.discard(request)
                self._workers.discard(threading.current_thread())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over a client that hung up; anything else is a fault of this module and goes to stderr as usual."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
