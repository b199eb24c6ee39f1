"""The server of the page: on this machine only, for the one browser that brings the token.

Every request passes `Guard`. It refuses clients that are not on the loopback interface, a Host other than the address
of the server (DNS rebinding), an Origin or a fetch from another site, and anyone without the cookie, which the token of
the address that is printed is exchanged for, once. The policy of the page allows its one script and its one style.
"""

import hmac
import ipaddress
import secrets
import socket
import threading
import warnings
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from dpsieve.display import json_text
from dpsieve.errors import DpsieveError, InvalidValue, PrivacyWarning
from dpsieve.explore.inputs import read_inputs, spell
from dpsieve.explore.planning import Ahead
from dpsieve.explore.saved import Files
from dpsieve.explore.views import VIEWS, neighbours

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.responses import Response

PORT = 8765
LONGEST_UPLOAD = 1 << 23
_HOST = "127.0.0.1"
_QUIET = 0.3  # seconds without a question, before the neighbours of the last one are prepared
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_REOPEN = "Open the address that dpsieve explore has printed; it works once. For another browser, start it again."

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


@dataclass
class Session:
    """One run of the explorer: what it may open, and the secrets that its browser has to bring."""

    files: Files
    port: int = PORT
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def address(self) -> str:
        """The address to open."""
        return f"http://{_HOST}:{self.port}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """Cookies of a host are shared by its ports."""
        return f"dpsieve-explore-{self.port}"

    def exchange(self, token: str) -> bool:
        """Return whether this is the token; it is used up."""
        is_right = bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())
        self.token = "" if is_right else self.token
        return is_right


class Guard:
    """Refuses what does not come from the page, and adds headers to all answers."""

    def __init__(self, app: _App, session: Session) -> None:
        self._app, self._session = app, session

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no page of ours opens a socket
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        answer = self._refuse(scope) or self._exchange(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refuse(self, scope: _Scope) -> "Response | None":
        """Return the refusal of a request that comes from elsewhere; None for any other."""
        headers, hosts = _headers(scope), {f"{_HOST}:{self._session.port}", f"localhost:{self._session.port}"}
        host, origin = headers.get("host", []), headers.get("origin", [])
        if not _is_loopback(scope.get("client")):
            return _text("The explorer answers this machine only.", 403)
        if len(host) != 1 or host[0] not in hosts:
            return _text("The explorer answers by its own address only.", 421)
        if any(one != f"http://{host[0]}" for one in origin):
            return _text("The explorer answers its own page only.", 403)
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return _text("The explorer answers its own page only. Type or paste its address.", 403)
        return None

    def _exchange(self, scope: _Scope) -> "Response | None":
        """Return what a browser without the cookie is told: its cookie, for the token; None where it has the cookie."""
        from starlette.responses import RedirectResponse

        session, given = self._session, parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        at_door = scope["path"] == "/" and scope["method"] == "GET"
        if _has_cookie(_headers(scope), session):
            return RedirectResponse("/", 303) if at_door and given else None
        if at_door and len(given) == 1 and session.exchange(given[0]):
            answer = RedirectResponse("/", 303)  # the address bar keeps the fragment, and loses the token
            answer.set_cookie(session.cookie_name, session.cookie, httponly=True, samesite="strict")
            return answer
        return _text(_REOPEN, 403)


def _headers(scope: _Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def _is_loopback(client: tuple[str, int] | None) -> bool:
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _has_cookie(headers: Mapping[str, list[str]], session: Session) -> bool:
    """Return whether one of the cookies is that of the session: other servers of this machine may set any."""
    pairs = (one.strip().partition("=") for one in ";".join(headers.get("cookie", [])).split(";"))
    given = (value for name, _, value in pairs if name == session.cookie_name)
    return any(hmac.compare_digest(value.encode(), session.cookie.encode()) for value in given)


def _text(words: str, status: int) -> "Response":
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{words}\n", status)


def _json(value: Any, status: int = 200) -> "Response":
    from starlette.responses import Response

    return Response(json_text(value), status, media_type="application/json")


def application(session: Session) -> "Starlette":
    """Return the ASGI application of a session."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    ahead, one_at_a_time = Ahead(), threading.Lock()

    def asset(kind: str, media: str) -> Callable[[Request], Response]:
        return lambda request: Response(_asset(kind), media_type=media)

    def describe_views(request: Request) -> Response:
        views = {
            name: {"title": view.title, "intro": view.intro,
                   "inputs": [one.to_json() for one in view.inputs(session.files)]}
            for name, view in VIEWS.items()
        }  # fmt: skip
        return _json(views)

    def answer(request: Request) -> Response:
        view = VIEWS.get(request.path_params["view"])
        return _text("There is no such view.", 404) if view is None else _told(request, lambda: _answer(view, request))

    def _answer(view: Any, request: Request) -> Any:
        given = read_inputs(view.inputs(session.files), dict(request.query_params))
        with one_at_a_time, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", PrivacyWarning)
            found = vars(view.answer(session.files, given))
        ahead.prepare(found.pop("ahead"), after=_QUIET)
        notes = list(dict.fromkeys(spell(str(one.message), _names(view)) for one in heard))
        return found | {"notes": [*notes, *found["notes"]]}

    def _names(view: Any) -> list[str]:
        return [one.name for one in view.inputs(session.files)]

    def _told(request: Request, make: Callable[[], Any]) -> Response:
        """Return an answer, or the message of the library in the words of the page."""
        view = VIEWS.get(request.path_params.get("view", "plan"), VIEWS["plan"])
        try:
            return _json(make())
        except DpsieveError as error:
            names = _names(view)
            start = next((name for name in names if str(error).startswith(name)), None)
            return _json({"error": spell(str(error), names), "argument": error.argument or start}, 400)
        except Exception as error:  # its message may hold anything
            return _json({"error": f"internal error: {type(error).__name__}. Please report it.", "argument": None}, 500)

    async def add_histogram(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_UPLOAD:
                return _json({"error": "The file is larger than 8 MB. Pass fewer lines.", "argument": "histogram"}, 413)
        add = lambda: {"histogram": session.files.add_histogram(body.decode("utf-8", "replace"))}  # noqa: E731
        return await run_in_threadpool(_told, request, add)  # other requests are answered meanwhile

    routes = [
        Route("/", asset("html", "text/html; charset=utf-8")),
        Route("/explore.js", asset("js", "text/javascript; charset=utf-8")),
        Route("/explore.css", asset("css", "text/css; charset=utf-8")),
        Route("/views", describe_views),
        Route("/views/{view}", answer),
        Route("/histogram", add_histogram, methods=["POST"]),
    ]

    @asynccontextmanager
    async def until_shutdown(_: Starlette) -> AsyncIterator[None]:
        ahead.prepare(neighbours(read_inputs(VIEWS["plan"].inputs(session.files), {})))  # before the browser asks
        yield
        ahead.prepare(())

    made = Starlette(routes=routes, middleware=[Middleware(Guard, session=session)], lifespan=until_shutdown)
    made.router.redirect_slashes = False
    made.state.ahead = ahead
    return made


def _asset(kind: str) -> str:
    """Return a file of the page; its script and its style begin with those that the report page shares."""
    shared = {"js": "parts.js", "css": "report.css"}.get(kind)
    first = "" if shared is None else files("dpsieve.publication").joinpath(shared).read_text("utf-8")
    return first + files("dpsieve.explore").joinpath(f"explore.{kind}").read_text("utf-8")


def serve(
    root: Path | None = None,
    ledgers: dict[str, Path] | None = None,
    *,
    port: int | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the explorer on the loopback interface until Ctrl-C.

    Args:
        root: the folder whose releases the page may open.
        ledgers: the ledgers that it may read, by the names that it shows.
        port: 0 is any free one; None is the usual one, or any free one where that is in use.
        browser: open it in the browser of this machine.
        say: what prints the address.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise InvalidValue("explore needs Starlette and uvicorn. Run: pip install '.[explore]' in the clone") from None
    held = Files(None if root is None else root.resolve(), ledgers or {})
    with bind(port) as bound:
        session = Session(held, bound.getsockname()[1])
        config = uvicorn.Config(
            application(session), log_level="critical", access_log=False, server_header=False, proxy_headers=False,
            ws="none", timeout_graceful_shutdown=1,
        )  # fmt: skip
        say(f"The explorer is at {session.address}\nThe address works once, on this machine. Ctrl-C ends it.")
        if browser:
            threading.Thread(target=webbrowser.open, args=(session.address,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[bound])


def bind(port: int | None) -> socket.socket:
    """Return a socket that listens on the loopback interface."""
    for wanted in (PORT, 0) if port is None else (port,):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((_HOST, wanted))
            bound.listen(128)
            return bound
        except OSError as error:
            bound.close()
            reason = f"port={wanted} cannot be used ({error.strerror}). Pass port=0 for a free one."
    raise InvalidValue(reason, argument="port")
