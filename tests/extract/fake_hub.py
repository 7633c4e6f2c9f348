"""A Hugging Face hub on loopback: serves directories as repositories, and refuses others as the real one does."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c0ffee" + "0" * 34
REFUSALS = {
    "acme/gated": (403, "GatedRepo"),
    "acme/missing": (404, "RepoNotFound"),
    "acme/private": (401, "RepoNotFound"),
    "acme/no-such-revision": (404, "RevisionNotFound"),
    "acme/no-config": (404, "EntryNotFound"),
}


@contextmanager
def serve(repositories: Mapping[str, Path]) -> Iterator[str]:
    """Serve the repositories by id; yields the address for HF_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def do_HEAD(self) -> None:
            status, content, error = _answer(repositories, self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Error-Code", error)
            self.send_header("ETag", f'"{sha1(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def do_GET(self) -> None:
            self.do_HEAD()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(repositories: Mapping[str, Path], path: str) -> tuple[int, bytes, str]:
    """Status, content and error code for a path such as /OWNER/NAME/resolve/REVISION/FILE."""
    name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
    if name in REFUSALS:
        status, error = REFUSALS[name]
        return status, b"", error
    if path.endswith(f"/tree/{COMMIT}"):
        files = [{"type": "file", "path": file.name, "oid": "0" * 40} for file in repositories[name].iterdir()]
        return 200, json.dumps(files).encode(), ""
    if "/resolve/" in path and (file := repositories[name] / path.rpartition("/")[2]).is_file():
        return 200, file.read_bytes(), ""
    return 404, b"", "EntryNotFound"
