"""A collector on loopback: takes what OTLP exporters send over HTTP, and gives it back decoded."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

KINDS = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
}


class Receiver:
    """Use it with `with`; `endpoint` is what exporters are told."""

    def __enter__(self):
        self.bodies = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                receiver.bodies.append((self.path, body))
                answer = KINDS[self.path][1]().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *args):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _decoded(self, path):
        return [KINDS[path][0].FromString(body) for where, body in list(self.bodies) if where == path]

    @property
    def everything(self):
        """Every byte that came."""
        return b"".join(body for _, body in self.bodies)

    @property
    def metrics(self):
        """Each metric of the newest export of each scope, by scope and name."""
        return {
            (scope.scope.name, metric.name): metric
            for request in self._decoded("/v1/metrics")
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    @property
    def spans(self):
        """Every span with its scope's name."""
        return [
            (scope.scope.name, span)
            for request in self._decoded("/v1/traces")
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def logs(self):
        """Name and attributes of each event that came as a log."""
        return [
            (value_of(row.body), attributes_of(row))
            for request in self._decoded("/v1/logs")
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for row in scope.log_records
        ]


def value_of(value):
    """Return a protobuf's value as what it is."""
    return getattr(value, value.WhichOneof("value"))


def attributes_of(thing):
    """Return the attributes of a span, a point or an event."""
    return {attribute.key: value_of(attribute.value) for attribute in thing.attributes}


def points_of(metric):
    """Return the points of a metric of whatever kind."""
    return list(getattr(metric, metric.WhichOneof("data")).data_points)
