"""Which requests the web UI answers: those of its own pages, and none that another website makes a browser send.

Dagster's application itself runs mutations by GET and by POST of any content type, whatever ``Host`` and ``Origin``
are.
"""

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost")
"""Names of this machine under which the web UI is opened."""

METHODS = {"GET", "HEAD", "POST"}
"""Methods that the web UI uses."""

GRAPHQL = "/graphql"
"""The path that runs queries and mutations; it answers only POST, and WebSockets."""

JSON = "application/json"
"""The only content type of a POST: a page of another origin cannot send it without asking first, which is refused."""

HEADERS = {"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin"}
"""Added to every answer: no other page may frame the web UI, or load what it answers."""


def guard_requests(app: ASGIApp, port: int, origins: Iterable[str] = ()) -> ASGIApp:
    """An application that refuses requests of other origins or for other hosts, and passes the others to ``app``.

    Parameters
    ----------
    app
        The ASGI application, which listens on the loopback interface.
    port
        Its port.
    origins
        Origins of proxies in front of it, as browsers show them, such as ``https://geometry.example.org``.
    """
    own = {f"http://{host}{'' if port == 80 else f':{port}'}" for host in LOOPBACK} | set(origins)
    hosts = sorted({urlsplit(origin).hostname or "" for origin in own})
    return TrustedHostMiddleware(RequestGuard(app, own), allowed_hosts=hosts, www_redirect=False)


class RequestGuard:
    """ASGI middleware that refuses requests with a foreign ``Origin``, and those that a foreign page sends unasked.

    A request without ``Origin`` is either a GET or not from a browser.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with status 403 and the reason."""

        async def send_isolated(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._explain_refusal(scope) if scope["type"] in {"http", "websocket"} else None
        answer = self._app if refusal is None else PlainTextResponse(f"Refused: {refusal}\n", status_code=403)
        await answer(scope, receive, send_isolated)

    def _explain_refusal(self, scope: Scope) -> str | None:
        """Why a request is refused; None if it is not."""
        headers = Headers(scope=scope)
        if any(origin not in self._origins for origin in headers.getlist("origin")):
            return "this web UI answers no page of another origin"
        if scope["type"] == "websocket":
            return None
        if scope["method"] not in METHODS:
            return f"the method {scope['method']} is not used"
        if scope["method"] == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            return None if kind == JSON else f"the content type must be {JSON}"
        return "queries and mutations are sent by POST" if scope["path"].rstrip("/") == GRAPHQL else None
