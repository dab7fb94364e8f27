"""An MCP server on standard input and output, by hand: one tool with structured content, one with text."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"characters": {"type": "number"}}}
TOOLS = [
    {
        "name": "structured",
        "description": "structured content",
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object", "properties": {"data": {"type": "string"}}},
    },
    {"name": "mixed", "description": "texts and an image", "inputSchema": SCHEMA},
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAADklEQVR4nGP4DwYMEAoAU7oL9ZisIGcAAAAASUVORK5CYII="


def call(name, characters):
    filler = "data " * (characters // 5)
    if name == "structured":
        return {"content": [{"type": "text", "text": "short"}], "structuredContent": {"data": filler}}
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": filler}, image, {"type": "text", "text": "the last words"}]}


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        server = {"name": "stdio", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], int(params["arguments"].get("characters", 0)))
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
