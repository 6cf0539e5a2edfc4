"""The HTTP side: a thread with a server on 127.0.0.1, and the faults that a test asks it to show."""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from loopback.queries import Refused, answer
from loopback.store import Store, StoredRun

KEY = "0123456789" * 4
"""An API key that the backend accepts."""


class Action(Enum):
    """What happens to a request instead of an answer."""

    STATUS = "status"
    DROP = "drop"  # the connection ends before the request has an effect
    DROP_AFTER = "drop after"  # it ends after the effect: the sender cannot know
    HANG = "hang"
    TRUNCATE = "truncate"  # half of a 200 answer; what the request brought is lost


@dataclass
class Fault:
    """Meets the next `count` requests with `where` in path or GraphQL operation, after `skip` of them."""

    where: str
    action: Action
    count: int = 10**9
    status: int = 500
    skip: int = 0
    seconds: float = 60.0


class Loopback:
    """The backend; use it as a context manager.

    Parameters
    ----------
    entities : teams that the key may write to; the first is the account's default
    projects : projects that exist, where the account may not create others
    """

    def __init__(
        self, entities: Sequence[str] = ("team",), projects: Sequence[str] | None = None, port: int = 0
    ) -> None:
        self.entities, self.projects = tuple(entities), projects
        self.deletions_allowed = True
        self.keys = {KEY}
        self.store = Store()
        self.lock = threading.RLock()
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.times: list[float] = []
        self._released = threading.Event()
        self._http = _Quiet(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.server_address[1]

    def __enter__(self) -> Loopback:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()

    def runs(self, job_type: str = "bench") -> dict[str, StoredRun]:
        """Runs of a type by name."""
        with self.lock:
            return {run.name: run for run in self.store.runs.values() if run.job_type == job_type}

    def rows(self) -> int:
        """History rows of all benchmark runs."""
        return sum(len(run.history) for run in self.runs().values())

    @contextmanager
    def showing(self, *faults: Fault) -> Iterator[None]:
        """Show faults while the block runs; hanging requests end with it."""
        with self.lock:
            self.faults[:] = faults
            self._released.clear()
        try:
            yield
        finally:
            with self.lock:
                self.faults.clear()
            self._released.set()

    def fault_for(self, what: str) -> Fault | None:
        """The fault that meets this request, counted."""
        with self.lock:
            self.requests.append(what)
            self.times.append(time.time())
            for fault in self.faults:
                if fault.where not in what or fault.count <= 0:
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.count -= 1
                return fault
        return None

    def wait_released(self, seconds: float) -> None:
        """Hang until the time is over or the block that asked for it ends."""
        self._released.wait(seconds)


def _handler(server: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        backend = server

    return Handler


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: connections that clients reset are what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    backend: Loopback
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    do_PUT = do_POST

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _serve(self, body: bytes) -> None:
        path = unquote(urlsplit(self.path).path)
        what = f"{self.command} {path}"
        request = json.loads(body) if path == "/graphql" else None
        if request is not None:
            operation = request.get("operationName") or _named(request["query"])
            what += f" {operation}"
        fault = self.backend.fault_for(what)
        if fault is None:
            self._send(*self._respond(path, body, request))
            return
        match fault.action:
            case Action.STATUS:
                self._send(
                    fault.status, {"errors": [{"message": f"injected {fault.status}"}], "error": "injected"}
                )
            case Action.DROP:
                self.close_connection = True
            case Action.DROP_AFTER:
                self._respond(path, body, request)
                self.close_connection = True
            case Action.HANG:
                self.backend.wait_released(fault.seconds)
                self.close_connection = True
            case Action.TRUNCATE:
                self._send(200, {"data": {"cut": "x" * 64}}, cut=True)

    def _respond(self, path: str, body: bytes, request: dict[str, Any] | None) -> tuple[int, Any]:
        if path.startswith("/storage/"):
            return self._stored(path, body)
        if path.startswith("/sdk/otel"):
            return 404, {}
        if not self._authorised():
            return 401, {"errors": [{"message": "invalid API key"}], "error": "invalid API key"}
        with self.backend.lock:
            if request is not None:
                operation = request.get("operationName") or _named(request["query"])
                try:
                    return 200, {"data": answer(self.backend, operation, request.get("variables") or {})}
                except Refused as error:
                    return error.status, {
                        "data": None,
                        "errors": [{"message": str(error), "path": [operation]}],
                    }
            if match := re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", path):
                self.backend.store.stream((match[1], match[2], match[3]), json.loads(body))
                return 200, {}
        return 404, {"error": f"no {path} here"}

    def _stored(self, path: str, body: bytes) -> tuple[int, Any]:
        """Keep an uploaded file of a run or an artifact."""
        kind, rest = path.removeprefix("/storage/").split("/", 1)
        with self.backend.lock:
            if kind == "artifact":
                artifact, name = rest.split("/", 1)
                self.backend.store.artifacts[artifact].files[name] = body
            else:
                entity, project, run, name = rest.split("/", 3)
                self.backend.store.upsert((entity, project, run))[0].files[name] = body
        return 200, {}

    def _authorised(self) -> bool:
        given = self.headers.get("Authorization", "")
        accepted = {base64.b64encode(f"api:{key}".encode()).decode() for key in self.backend.keys}
        return given.removeprefix("Basic ") in accepted

    def _send(self, status: int, values: Any, *, cut: bool = False) -> None:
        content = json.dumps(values).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
        except OSError:
            self.close_connection = True  # who asked has gone
        if cut:
            self.close_connection = True


def _named(query: str) -> str:
    match = re.search(r"\b(?:query|mutation)\s+(\w+)", query)
    return match[1] if match else "?"
