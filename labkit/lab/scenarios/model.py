"""A model on loopback that speaks Ollama's `POST /api/generate` and counts: notebook 09's witness.

    python -m labkit.lab.scenarios.model FOLDER

A process of its own, so no kill of an agent reaches it. It takes a free port of 127.0.0.1 and
prints its address. Each call is a line of FOLDER/calls.jsonl before it is answered, since work is
paid for when it is done, not when its result arrives. The answer is made of the prompt alone, for
whatever `model` is asked. What else Ollama knows (options, context, durations) is not here.

What lies under /lab/ is for the lab, which can hold an answer back: that is how a call is open for
as long as a kill needs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Condition
from typing import Any

__all__ = ["CALLS", "Counter", "answer_to", "main", "subject"]

CALLS = "calls.jsonl"
CREATED_AT = "2026-01-01T00:00:00Z"  # fixed, so that an answer is the same in every run
BODY_MAX = 10_000_000
LOOK_S = 0.1
HOLD_MAX_S = 300.0  # as long as an agent waits for its answer

Reply = dict[str, Any]


def subject(prompt: str) -> str:
    """What a prompt is about: the first line below its instruction, or its only line."""
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    return (lines[1:] or lines or [""])[0]


def answer_to(prompt: str) -> str:
    """What the model says; the same for the same prompt, unlike a real one."""
    return f"In short: {subject(prompt)}"


class Counter:
    """Counts calls in a file, and holds answers back when it is told to. Raises OSError."""

    def __init__(self, folder: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(os.path.join(folder, CALLS), flags, 0o666)
        self._changed = Condition()
        self._taken = 0
        self._waiting: set[int] = set()
        self._hold_from: int | None = None

    def take(self, model: str, prompt: str) -> None:
        """Counts one call; returns when it may be answered."""
        with self._changed:
            number = self._taken = self._taken + 1
            line = json.dumps({"call": number, "model": model, "prompt": prompt})
            os.write(self._file, f"{line}\n".encode())
            self._waiting.add(number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_held(number), HOLD_MAX_S)
            self._waiting.discard(number)

    def hold(self, nth: int) -> None:
        """Holds back the answer to the nth call from now, and to every later one."""
        with self._changed:
            self._hold_from = self._taken + nth
            self._changed.notify_all()

    def release(self) -> None:
        with self._changed:
            self._hold_from = None
            self._changed.notify_all()

    def count_held(self) -> int:
        """The calls whose answers are held back now; waits a moment for the first."""
        with self._changed:
            self._changed.wait_for(lambda: any(map(self._is_held, self._waiting)), LOOK_S)
            return sum(map(self._is_held, self._waiting))

    def _is_held(self, number: int) -> bool:
        return self._hold_from is not None and number >= self._hold_from


class Refused(Exception):
    """The caller's fault; the message is for the caller."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of the default of 5, a sixth caller at once would wait a second

    def __init__(self, counter: Counter) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.counter = counter

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own asks a name server, which may not answer
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Quiet: the caller was killed, and its answer goes to nobody."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of an answer waits for the caller's receipt

    def do_POST(self) -> None:
        try:
            if self.path == "/api/generate":
                self._generate(_object(self._body()))
            elif self.path == "/lab/hold":
                self.server.counter.hold(_object(self._body())["nth"])
                self._json({})
            elif self.path == "/lab/release":
                self.server.counter.release()
                self._json({})
            else:
                self._no_such_path()
        except Refused as refused:
            self._json({"error": str(refused)}, 400)

    def do_GET(self) -> None:
        if self.path == "/lab/open":
            self._json({"open": self.server.counter.count_held()})
        elif self.path == "/api/generate":
            self._send(405, "text/plain", b"405 method not allowed")
        else:
            self._no_such_path()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: nobody reads it, and a full pipe would stop us."""

    def _generate(self, asked: Reply) -> None:
        model, prompt = _field(asked, "model", str, ""), _field(asked, "prompt", str, "")
        stream = _field(asked, "stream", bool, True)
        if not model:
            raise Refused("model is required")
        text, why = "", "load"  # without a prompt Ollama loads the model and generates nothing
        if prompt:
            self.server.counter.take(model, prompt)
            text, why = answer_to(prompt), "stop"
        end = {"done": True, "done_reason": why}
        if prompt:
            end |= {"prompt_eval_count": len(prompt.split()), "eval_count": len(text.split())}
        told = {"model": model, "created_at": CREATED_AT}
        if stream and prompt:
            pieces: Iterator[Reply] = ({"response": piece, "done": False} for piece in _cut(text))
            self._lines([{**told, **piece} for piece in [*pieces, {"response": "", **end}]])
        else:
            self._json({**told, "response": text, **end})

    def _body(self) -> bytes:
        """Raises Refused for a body whose length is not told, or that is missing."""
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or int(length) > BODY_MAX:
            self.close_connection = True  # what follows on this connection is no request
            raise Refused("missing request body" if not length else f"no body of {length} bytes")
        body = self.rfile.read(int(length))
        if not body:
            raise Refused("missing request body")
        return body

    def _json(self, reply: Reply, status: int = 200) -> None:
        self._send(status, "application/json; charset=utf-8", json.dumps(reply).encode())

    def _no_such_path(self) -> None:
        self.close_connection = True  # its body was not read
        self._send(404, "text/plain", b"404 page not found")

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _lines(self, replies: list[Reply]) -> None:
        """One JSON object a line, each sent on its own, as they are made."""
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in (json.dumps(reply).encode() + b"\n" for reply in replies):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")


def _object(body: bytes) -> Reply:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise Refused("the body is no JSON object")
    return asked


def _field(asked: Reply, name: str, kind: type, default: Any) -> Any:
    value = default if asked.get(name) is None else asked[name]
    if not isinstance(value, kind):
        raise Refused(f"{name} is no {'text' if kind is str else 'true or false'}")
    return value


def _cut(text: str) -> list[str]:
    """Words, each with the space before it, as tokens have it."""
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]


def main(argv: list[str]) -> int:
    """Serves until it is killed; the first line of its output is its address."""
    if len(argv) != 1:
        sys.stderr.write("model: give one argument, the folder for the calls\n")
        return 64
    server = Server(Counter(argv[0]))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
