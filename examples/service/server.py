"""A small service that collects reports of clients: Starlette in front of SQLite.

    dpsieve ledger create clients.ledger --epsilon 4 --delta 1e-6 --privacy-unit client
    python examples/service/server.py create drinks clients.ledger '{"kind": "histogram", "epsilon": 1, "delta": 1e-8}'
    python examples/service/server.py serve drinks --port 8000
    python examples/service/server.py close drinks --round 1     # in another terminal, once enough have answered

It listens on this machine alone and knows no passwords: put a proxy with TLS and rate limits in front of it. Closing a
round is no request but a command, for who may enter the folder.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from store import Store

from dpsieve.errors import DpsieveError, InvalidValue

TAKEN, MALFORMED, UNKNOWN, NOT_OPEN, FAILED = 204, 400, 404, 409, 503
_MOST_AT_ONCE, _MOST_DIGITS, _HEX = 1000, 9, set("0123456789abcdef")
_parsed = lru_cache(maxsize=2)(json.loads)  # a question may be long, and is the same for all


class Writer:
    """Commits the messages of many requests at once: a commit waits for the disk, and all of them share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: asyncio.Queue[tuple[tuple[int, str, bytes], asyncio.Future[int]]] = asyncio.Queue()

    async def add(self, number: int, nonce: str, message: bytes) -> int:
        """Return what to answer, once the message is on disk."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await self._waiting.put(((number, nonce, message), answer))
        return await answer

    async def run(self) -> None:
        """Commit what is waiting, then what came meanwhile, and so on."""
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < _MOST_AT_ONCE and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                taken = await asyncio.to_thread(self._store.add, [message for message, _ in batch])
                codes = [TAKEN if ok else NOT_OPEN for ok in taken]
            except sqlite3.Error:  # a full disk, say: nothing of the batch is kept, and clients send it again
                codes = [FAILED] * len(batch)
            for (_, answer), code in zip(batch, codes, strict=True):
                if not answer.done():
                    answer.set_result(code)


def app_of(folder: Path) -> Starlette:
    """Return the application for one collection."""
    store, writer = Store(folder), Writer(Store(folder))

    async def question(_: Request) -> Response:
        now = store.now()
        asked = _parsed(now.question) if now.state == "open" else {}
        return JSONResponse({"collection": now.name, "round": now.round, "state": now.state, **asked})

    async def report(request: Request) -> Response:
        now, number = store.now(), request.path_params["number"]
        if not number.isdecimal() or len(number) > _MOST_DIGITS:
            return Response(status_code=UNKNOWN)
        if now.state != "open":
            return Response(status_code=NOT_OPEN)
        body, size = b"", _parsed(now.question)["size"]
        try:
            async for part in request.stream():
                body += part
                if len(body) > size:
                    break
        except ClientDisconnect:
            return Response(status_code=MALFORMED)  # which nobody reads
        nonce = nonce_of(body)
        if len(body) != size or nonce is None:
            return Response(status_code=MALFORMED)
        # Silence is stored like a report: the time of the answer does not tell one from the other.
        return Response(status_code=await writer.add(int(number), nonce, body))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(writer.run())
        yield
        running.cancel()

    routes = [Route("/question", question), Route("/rounds/{number}/reports", report, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


def nonce_of(message: bytes) -> str | None:
    """Return the nonce of a message, or None where it has none. The rest is read when the round is closed."""
    try:
        content = json.loads(message)
    except (ValueError, RecursionError):
        return None
    nonce = content.get("nonce") if isinstance(content, dict) else None
    return nonce if isinstance(nonce, str) and len(nonce) == 32 and set(nonce) <= _HEX else None


def main() -> None:
    """Create a collection, serve it, or close a round."""
    parser = argparse.ArgumentParser(description="Collect reports of clients.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("create", "serve", "close"):
        commands.add_parser(name).add_argument("folder", type=Path, help="the folder of the collection")
    commands.choices["create"].add_argument(
        "ledger", type=Path, help="made by dpsieve ledger create --privacy-unit client"
    )
    commands.choices["create"].add_argument("options", help="JSON: kind, epsilon, delta, ...")
    commands.choices["serve"].add_argument("--port", type=int, default=8000)
    commands.choices["close"].add_argument("--round", type=int, required=True, help="which; see /question")
    told = parser.parse_args()
    try:
        _run(told)
    except (DpsieveError, OSError, sqlite3.Error) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _run(told: argparse.Namespace) -> None:
    if told.command == "serve":
        # No access log: addresses and times of requests would tell who is in the sample.
        uvicorn.run(app_of(told.folder), host="127.0.0.1", port=told.port, access_log=False, log_level="warning")
        return
    import rounds  # not needed to serve: it loads the whole library

    if told.command == "create":
        rounds.create(told.folder, _options(told.options), told.ledger)
        print(f"Created {told.folder}: round 1 is open, and nothing is spent before it is closed.")
        print(f"Run next: server.py serve {told.folder}")
        return
    now = rounds.close(told.folder, told.round)
    print(f"Round {now.round} is {now.state}." if now.state != "done" else f"Published in {told.folder / 'published'}.")


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise InvalidValue("""options must be a JSON object. Pass one such as '{"kind": "histogram", "epsilon": 1}'.""")
    return options


if __name__ == "__main__":
    main()
