"""Another system, behind HTTP on this machine: it delivers mails, and remembers the keys it saw.

An agent that sends a mail is killed after its call and run again. Whether the reader gets one mail
or two is decided here, at the receiver.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from labkit.lab import verbs
from labkit.lab.handing import hand_over
from labkit.lab.sweeps import FETCH, give_plan
from labkit.lab.trials import crash_and_resume

__all__ = ["Receiver", "send_mail", "send_twice"]


def send_mail(input: dict[str, str], ctx: dict[int, dict[str, str]], idem_key: str) -> object:
    """Step 1: the mail is the text of step 0; the key goes with the call, in a header."""
    from urllib.request import ProxyHandler, Request, build_opener

    headers = {"Idempotency-Key": idem_key} if input["key"] == "yes" else {}
    mail = Request(input["url"], ctx[0]["text"].encode(), headers)
    with build_opener(ProxyHandler({})).open(mail, timeout=10) as answer:
        return {"answer": answer.read().decode()}


class Receiver:
    """Counts the calls and delivers each mail, unless it has delivered one with that key."""

    def __init__(self) -> None:
        self.calls, self.mails = 0, 0
        self.answers: dict[str, str] = {}  # by key

    def receive(self, key: str | None) -> str:
        self.calls += 1
        if key in self.answers:
            return self.answers[key]
        self.mails += 1
        answer = f"delivered as mail {self.mails}"
        if key:
            self.answers[key] = answer
        return answer


def send_twice(*, with_key: bool) -> dict[str, int]:
    """The calls and the mails that the receiver saw, of an agent that was killed after its call."""
    receiver = Receiver()
    with HTTPServer(("127.0.0.1", 0), _handler(receiver)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            _kill_and_resume(f"http://127.0.0.1:{server.server_port}/", with_key)
        finally:
            server.shutdown()
            thread.join()
    return {"calls": receiver.calls, "mails": receiver.mails}


def _kill_and_resume(url: str, with_key: bool) -> None:
    folder = verbs.current_notebook().open_folder("mail")
    given = {"url": url, "key": "yes" if with_key else "no"}
    give_plan(folder, [FETCH, {"tool": send_mail.__name__, "input": given}])
    crash_and_resume(folder, "after_effect:1", options=hand_over(send_mail, folder))


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = receiver.receive(self.headers["Idempotency-Key"]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Says nothing: a notebook would show it in the cell."""

    return Handler
