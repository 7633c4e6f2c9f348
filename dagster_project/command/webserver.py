"""The process of the web UI: Dagster's application behind a guard of requests, with the daemon as its child.

Dagster's application itself runs mutations by GET and by POST of any content type, whatever ``Host`` and ``Origin``
are. The guard lets pass requests of its own pages, and none that another website makes a browser send.
"""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import uvicorn
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext  # Dagster exports no names for these
from dagster._core.workspace.load_target import ModuleTarget
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.cli import (
    DEFAULT_DB_STATEMENT_TIMEOUT,
    DEFAULT_POOL_MAX_OVERFLOW,
    DEFAULT_POOL_RECYCLE,
)
from dagster_webserver.version import __version__
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from dagster_project.command.program import ExitStatus
from dagster_project.defs.assets import OURS
from dagster_project.study.home import Home

DEFINITIONS = "dagster_project.definitions"

FOLDER = str(Path(__file__).parents[2])
"""Where Dagster looks for modules first: else that is the folder in which the command ran, whatever files are there."""

PATIENCE = 5.0
"""Seconds that the daemon has to end by itself."""


LOOPBACK = ("127.0.0.1", "localhost")
"""Names of this machine under which the web UI is opened."""

HEADERS = {"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"}
"""Added to every answer: no other page may frame the web UI, or load what it answers."""


def run_servers(port: int, origins: Sequence[str]) -> None:
    """Run web UI and daemon until either ends, or the process that holds the other end of standard input."""
    _end_with_parent()
    with _run_daemon(), DagsterInstance.get() as instance:
        instance.optimize_for_webserver(DEFAULT_DB_STATEMENT_TIMEOUT, DEFAULT_POOL_RECYCLE, DEFAULT_POOL_MAX_OVERFLOW)
        target = ModuleTarget(DEFINITIONS, attribute=None, working_directory=FOLDER, location_name=None)
        with WorkspaceProcessContext(instance, target, __version__, code_server_log_level="ERROR") as workspace:
            app = create_app_from_workspace_process_context(workspace, lifespan=_announce(port))
            app.router.routes[:0] = build_routes(Home.from_environment().reports)
            uvicorn.run(guard_requests(app, port, origins), host="127.0.0.1", port=port, log_level="warning")


def build_routes(reports: Path) -> list[Route]:
    """What is answered beside Dagster's own: the first page, and the pages of studies in a folder, by their names.

    A page has an origin of its own there, so that nothing in it can ask Dagster for anything.
    """

    async def show_page(request: Request) -> Response:
        page = reports / f"{request.path_params['name']}.html"
        if not page.is_file():
            return PlainTextResponse(f"There is no page {page.name}; write it: attention-geometry report NAME", 404)
        return FileResponse(page, headers={"Content-Security-Policy": "sandbox allow-scripts allow-popups"})

    # Dagster's own first page, a timeline, shows only runs that the web UI or the daemon started
    return [Route("/", RedirectResponse("/runs")), Route(f"{OURS.pages}/{{name}}.html", show_page)]


def guard_requests(app: ASGIApp, port: int, origins: Iterable[str] = ()) -> ASGIApp:
    """An application that refuses requests of other origins or for other hosts, and passes the others to ``app``.

    It listens on this port of the loopback interface; ``origins`` are those of proxies in front of it, as browsers show
    them, such as ``https://geometry.example.org``.
    """
    own = {f"http://{host}{'' if port == 80 else f':{port}'}" for host in LOOPBACK} | set(origins)
    hosts = sorted({urlsplit(origin).hostname or "" for origin in own})

    async def answer_own(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_isolated(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = _explain_refusal(scope, own) if scope["type"] in {"http", "websocket"} else None
        answer = app if refusal is None else PlainTextResponse(f"Refused: {refusal}\n", status_code=403)
        await answer(scope, receive, send_isolated)

    return TrustedHostMiddleware(answer_own, allowed_hosts=hosts, www_redirect=False)


def _explain_refusal(scope: Scope, own: set[str]) -> str | None:
    """Why a request is refused, if its origin is foreign or a foreign page could send it unasked; else None.

    A request without ``Origin`` is either a GET or not from a browser.
    """
    headers = Headers(scope=scope)
    if any(origin not in own for origin in headers.getlist("origin")):
        return "this web UI answers no page of another origin"
    if scope["type"] == "websocket":
        return None
    if scope["method"] not in {"GET", "HEAD", "POST"}:
        return f"the method {scope['method']} is not used"
    if scope["method"] == "POST":  # with a type that a page of another origin cannot send without asking first
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        return None if kind == "application/json" else "the content type must be application/json"
    return "queries and mutations are sent by POST" if scope["path"].rstrip("/") == "/graphql" else None


def _end_with_parent() -> None:
    """Kill this process and its group once its parent has ended in any way, which closes the pipe of standard input."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    Thread(target=wait, daemon=True, name="parent").start()


@contextmanager
def _run_daemon() -> Iterator[None]:
    """Run Dagster's daemon inside the context; if it ends by itself, this process is interrupted."""
    # a server of code warns whenever nobody asks it any more, which is how each of them ends
    levels = ["--log-level", "warning", "--code-server-log-level", "error"]
    given = ["-m", DEFINITIONS, "--working-directory", FOLDER, *levels]
    command = [sys.executable, "-m", "dagster._daemon", "run", *given]
    daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 (no shell, our own interpreter)
    stopping = False

    def wait() -> None:
        if daemon.wait() and not stopping:
            os.kill(os.getpid(), signal.SIGINT)

    Thread(target=wait, daemon=True, name="daemon").start()
    try:
        yield
    finally:
        stopping = True
        daemon.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            daemon.wait(PATIENCE)


def _announce(port: int) -> Lifespan[Starlette]:
    """Print the address of the web UI once it is ready; end without a traceback after Ctrl-C."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001 (Starlette's signature)
        sys.stderr.write(f"Web UI: http://127.0.0.1:{port} (Ctrl-C stops it)\n")
        with suppress(asyncio.CancelledError):
            yield

    return lifespan


if __name__ == "__main__":
    status = ExitStatus()
    atexit.register(status.end)
    run_servers(int(sys.argv[1]), sys.argv[2:])
    status.code = 0
