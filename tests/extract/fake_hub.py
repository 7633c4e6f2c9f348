"""A Hugging Face hub on loopback: serves directories as repositories, and refuses others as the real one does."""

import json
import re
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import datasets
import pytest
from huggingface_hub import HfFileSystem, constants
from huggingface_hub.utils import close_session

COMMIT = "c0ffee" + "0" * 34
REFUSALS = {
    "acme/gated": (403, "GatedRepo"),
    "acme/missing": (404, "RepoNotFound"),
    "acme/private": (401, "RepoNotFound"),
    "acme/no-such-revision": (404, "RevisionNotFound"),
    "acme/no-config": (404, "EntryNotFound"),
}

CUT, RESET = "cut", "reset"
"""Faults beside a status: a body that ends too early, and a connection that is reset."""


@dataclass
class FakeHub:
    """What a hub was asked for, and what it shall get wrong."""

    address: str = ""
    asked: list[str] = field(default_factory=list)
    """Method and path of each request, in order."""
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes of each file that were sent on request for a part of it."""
    tokens: set[str | None] = field(default_factory=set)
    """What requests were authorised with."""
    faults: deque[int | str | None] = field(default_factory=deque)
    """What to do on the next requests for a part of a file: ``CUT``, ``RESET`` or a status; None answers well."""


class _Quiet(BaseHTTPRequestHandler):
    """A handler that answers HEAD as GET, without the content."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def answer(self, status: int, content: bytes, error: str, fault: int | str | None) -> None:
        if fault == RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("X-Repo-Commit", COMMIT)
        if error:
            self.send_header("X-Error-Code", error)
        self.send_header("ETag", f'"{sha1(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if fault == CUT else content)


@contextmanager
def serve(repositories: Mapping[str, Path]) -> Iterator[FakeHub]:
    """Serve repositories by id, whole and in parts: of models, or of datasets at one commit for every revision."""
    hub = FakeHub()

    class Handler(_Quiet):
        def do_GET(self) -> None:
            path, _, query = unquote(self.path).partition("?")
            hub.asked.append(f"{self.command} {path}")
            hub.tokens.add(self.headers["Authorization"])
            part = re.match(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
            fault = hub.faults.popleft() if part and hub.faults else None
            status, content, error = _answer(repositories, path, query)
            if part and status == 200:
                status, content = 206, content[int(part[1]) : int(part[2]) + 1 if part[2] else None]
                hub.sent[path.rpartition("/")[2]] += len(content)
            if isinstance(fault, int):
                status, content = fault, b""
            self.answer(status, content, error, fault)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(repositories: Mapping[str, Path], path: str, query: str) -> tuple[int, bytes, str]:
    """Status, content and error code for a path of the hub's interface, or of a file in a repository."""
    rest = re.sub("^/api", "", path)
    rest = re.sub("^/(models|datasets)", "", rest)
    name = "/".join(rest.split("/")[1:3])
    rest, of_dataset = rest.removeprefix(f"/{name}"), "/datasets/" in path
    if name in REFUSALS and not (of_dataset and name == "acme/gated" and not rest.startswith("/resolve/")):
        status, error = REFUSALS[name]  # gated datasets have public metadata
        return status, b"", error
    root = repositories.get(name)
    if of_dataset and rest.startswith("/revision/"):
        return 200, json.dumps({"id": name, "sha": COMMIT, "siblings": []}).encode(), ""
    if root and (found := re.match(rf"/tree/{COMMIT}/?(.*)", rest)) and (root / found[1]).is_dir():
        below = (root / found[1]).glob("**/*" if "recursive=true" in query.lower() else "*")
        entries = [
            {"type": "file", "path": path.relative_to(root).as_posix(), "oid": "0" * 40, "size": path.stat().st_size}
            | ({} if path.is_file() else {"type": "directory"})
            for path in sorted(below)
        ]
        return 200, json.dumps(entries).encode(), ""
    if root and (found := re.match(r"/resolve/[^/]+/(.*)", rest)) and (root / found[1]).is_file():
        return 200, (root / found[1]).read_bytes(), ""
    return 404, b"", "EntryNotFound"


def go_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the server at the address for the Hugging Face hub."""
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", address)


@contextmanager
def reach(repositories: Mapping[str, Path], cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Serve repositories, and take this for the Hugging Face hub, with a cache of its own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache / "datasets")
    with serve(repositories) as served:
        go_to(served.address, monkeypatch)
        HfFileSystem.clear_instance_cache()
        yield served
        close_session()
