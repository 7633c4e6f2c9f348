"""An object store on loopback to test with; skips where its server is not installed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from storage.files.places import RemotePlace

KEY_ID, SECRET = "AKIALOOPBACKTEST", "a-secret-of-the-test"  # of no one


@contextmanager
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[RemotePlace]:
    """A place in a new bucket of an S3 server on loopback; the environment leads there."""
    server = pytest.importorskip("moto.server", reason="moto, an S3 server for tests, is not installed")
    pytest.importorskip("obstore", reason="obstore, the client of object stores, is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    endpoint, name = f"http://{host}:{port}", f"bucket-{uuid4().hex[:8]}"
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
    try:
        with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
            yield RemotePlace(f"s3://{name}/studies")
    finally:
        started.stop()
