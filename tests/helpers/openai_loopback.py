"""An OpenAI-compatible server on the loopback that gives the replies that it was told: whole, streamed, or an error."""

import contextlib
import http.server
import json
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Plays the server's next reply: a dict of `text`, `total` and, for a stream that breaks, `cut`; or a status."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        reply = self.server.replies.pop(0)
        if isinstance(reply, int):
            self.answer(reply, "application/json", json.dumps({"error": {"message": "no", "type": "test"}}))
            return
        self.server.answers += 1
        base = {"id": f"chatcmpl-{self.server.answers}", "created": 1, "model": asked["model"]}
        if asked.get("stream"):
            self.answer(200, "text/event-stream", self.events(base, reply))
        else:
            message = {"role": "assistant", "content": reply["text"]}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            whole = {**base, "object": "chat.completion", "choices": choices}
            if reply["total"]:
                whole["usage"] = usage(reply["total"])
            self.answer(200, "application/json", json.dumps(whole))

    def events(self, base, reply):
        base = {**base, "object": "chat.completion.chunk"}
        chunks = [
            {**base, "usage": None, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}
            for word in reply["text"]
        ]
        chunks.append({**base, "usage": None, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if reply["total"]:
            chunks.append({**base, "choices": [], "usage": usage(reply["total"])})
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        if reply.get("cut"):
            return "".join(lines[:2]) + 'data: {"error": {"message": "gone"}}\n\n'
        return "".join(lines) + "data: [DONE]\n\n"

    def answer(self, code, kind, body):
        data = body.encode()
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        """Stay quiet."""


def usage(total):
    return {"prompt_tokens": total - 5, "completion_tokens": 5, "total_tokens": total}


@contextlib.contextmanager
def serve(*replies):
    """Serve from a thread; `replies` is what is still to be given, `asked` what was asked, `url` the base URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.replies, server.asked, server.answers = list(replies), [], 0
        server.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
