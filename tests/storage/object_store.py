"""An object store on loopback to test with; skips where its server is not installed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from storage.files.places import Place
from storage.files.root import parse_place

KEY_ID, SECRET = "AKIALOOPBACKTEST", "a-secret-of-the-test"  # of no one


@cache
def start_server() -> str:
    """Start an S3 server on loopback, which ends with this process; stopping it takes half a second."""
    server = pytest.importorskip("moto.server", reason="moto, an S3 server for tests, is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    return f"http://{host}:{port}"


@contextmanager
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place in a new bucket of that server; the environment leads there."""
    pytest.importorskip("obstore", reason="obstore, the client of object stores, is not installed")
    endpoint, name = start_server(), f"bucket-{uuid4().hex[:8]}"
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "NO_PROXY": "127.0.0.1",
    }
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
        yield parse_place(f"s3://{name}/studies")
