"""An S3 server on loopback (moto, which others keep), and a proxy before it that breaks what it is told to break.

moto stores the checksums that it is sent and does not look at them. So the proxy does what S3 does: a body that is not
what `x-amz-checksum-sha256` says is answered with BadDigest, and a clock that is off by more than 15 minutes with
RequestTimeTooSkewed.
"""

import base64
import contextlib
import hashlib
import http.client
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from datetime import UTC, datetime, timedelta

SECRET = "planted/Secret+Key0000000000000000000000"  # a key that must not be seen anywhere
KEY_ID = "AKIAPLANTEDKEYID0001"


def environment(port):
    """What a user has in the environment, for this server."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """moto in a process of its own. Its objects are looked at through boto3, which is another client than ours."""

    def __init__(self):
        self.port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        import boto3

        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        )

    def make_bucket(self, name):
        self.client.create_bucket(Bucket=name)
        return name

    def objects(self, bucket):
        """All objects of a bucket: their bytes by name."""
        found = self.client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {each["Key"]: self.client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in found}

    def head(self, bucket, key):
        return self.client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")

    def close(self):
        self.client.close()
        self._process.terminate()
        self._process.wait()


class Proxy:
    """Hands requests on to a server, but for what `faults` says.

    Attributes:
        faults: what becomes of the next requests that change something, one each: a status, `cut` (the connection
            ends in the middle of the body), `damage` (a byte of the body is changed on the way).
        down: whether nobody answers: each connection is closed at once.
        delay: seconds before each answer.
        clock: how far this server's clock is ahead of the client's.
        seen: method, path and headers of each request that was read.
    """

    def __init__(self, target):
        self.faults = []
        self.down = False
        self.delay = 0.0
        self.clock = timedelta(0)
        self.seen = []
        self.skewed = threading.Event()
        self.failed = threading.Event()
        self.asked = threading.Event()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                proxy.handle(self, target)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815  # names of the base class

            def log_message(self, *_):
                pass

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a client that was killed

        self._server = Threads(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def handle(self, request, target):
        size = int(request.headers.get("content-length") or 0)
        self.asked.set()
        if self.down:
            self.failed.set()
            self.end(request)
            return
        fault = self.faults.pop(0) if self.faults and request.command in {"PUT", "POST"} else None
        if fault == "cut":
            request.rfile.read(size // 2)
            self.failed.set()
            self.end(request)
            return
        body = request.rfile.read(size)
        self.seen.append((request.command, request.path, dict(request.headers)))
        threading.Event().wait(self.delay)
        if isinstance(fault, int):
            self.failed.set()
            self.answer(request, fault, b"<Error><Code>InternalError</Code><Message>planted</Message></Error>")
        elif self.is_skewed(request):
            self.skewed.set()
            said = f"<Error><Code>RequestTimeTooSkewed</Code><Message>{SECRET}</Message></Error>"
            self.answer(request, 403, said.encode())
        elif self.is_damaged(request, self.damaged(body) if fault == "damage" else body):
            self.answer(request, 400, b"<Error><Code>BadDigest</Code><Message>no</Message></Error>")
        else:
            body = self.damaged(body) if fault == "silent damage" else body
            self.forward(request, body, target)

    @staticmethod
    def damaged(body):
        return bytes([body[0] ^ 1]) + body[1:] if body else body

    def is_skewed(self, request):
        stamp = request.headers.get("x-amz-date")
        if stamp is None:
            return False
        sent = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return abs(datetime.now(UTC) + self.clock - sent) > timedelta(minutes=15)

    @staticmethod
    def is_damaged(request, body):
        said = request.headers.get("x-amz-checksum-sha256")
        return said is not None and request.command == "PUT" and base64.b64decode(said) != hashlib.sha256(body).digest()

    @staticmethod
    def answer(request, status, body):
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def end(self, request):
        request.close_connection = True
        with contextlib.suppress(OSError):
            request.connection.shutdown(socket.SHUT_RDWR)

    def forward(self, request, body, target):
        upstream = http.client.HTTPConnection("127.0.0.1", target, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() != "connection"}
        upstream.request(request.command, request.path, body, headers)
        answer = upstream.getresponse()
        data = answer.read()
        request.send_response(answer.status)
        left_out = {"transfer-encoding", "connection", "date", "server", "content-length"}
        for name, value in answer.getheaders():
            if name.lower() not in left_out:
                request.send_header(name, value)
        length = answer.getheader("content-length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(data)))
        request.end_headers()
        request.wfile.write(data)
        upstream.close()

    def sent(self):
        """Names of the objects that were put, in order, one for each request that reached the server."""
        return [
            re.sub(r"^/[^/]+/", "", urllib.parse.unquote(urllib.parse.urlsplit(path).path))
            for method, path, _ in self.seen
            if method == "PUT"
        ]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def set_environment(port, setenv=os.environ.__setitem__):
    for name, value in environment(port).items():
        setenv(name, value)
