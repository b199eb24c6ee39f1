"""A small service that collects reports of clients: Starlette in front of SQLite.

    dpsieve ledger create clients.ledger --epsilon 4 --delta 1e-6 --unit client
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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from store import Store

TAKEN, MALFORMED, NOT_OPEN, FAILED = 204, 400, 409, 503
_MOST_AT_ONCE, _HEX = 1000, set("0123456789abcdef")
_parsed = lru_cache(maxsize=2)(json.loads)  # a question may be long, and is the same for all


class Writer:
    """Commits the messages of many requests at once: a commit waits for the disk, and all of them share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: asyncio.Queue[tuple[tuple[int, str | None, bytes], asyncio.Future[int]]] = asyncio.Queue()

    async def add(self, number: int, nonce: str | None, message: bytes) -> int:
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
        now = store.now()
        if now.state != "open":
            return Response(status_code=NOT_OPEN)
        body, size = b"", _parsed(now.question)["size"]
        async for part in request.stream():
            body += part
            if len(body) > size:
                break
        nonce, sound = nonce_of(body)
        if len(body) != size or not sound:
            return Response(status_code=MALFORMED)
        # Silence takes the same way, so that the time of the answer does not tell it from a report.
        return Response(status_code=await writer.add(request.path_params["number"], nonce, body.rstrip()))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(writer.run())
        yield
        running.cancel()

    routes = [Route("/question", question), Route("/rounds/{number:int}/reports", report, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


def nonce_of(message: bytes) -> tuple[str | None, bool]:
    """Return the nonce of a report, None for silence, and whether it is one of the two. The rest is read at the end."""
    try:
        content = json.loads(message)
    except (ValueError, RecursionError):
        return None, False
    if content is None:
        return None, True
    nonce = content.get("nonce") if isinstance(content, dict) else None
    return nonce, isinstance(nonce, str) and len(nonce) == 32 and set(nonce) <= _HEX


def main() -> None:
    """Create a collection, serve it, or close a round."""
    parser = argparse.ArgumentParser(description="Collect reports of clients.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("create", "serve", "close"):
        commands.add_parser(name).add_argument("folder", type=Path, help="the folder of the collection")
    commands.choices["create"].add_argument("ledger", type=Path, help="made by dpsieve ledger create --unit client")
    commands.choices["create"].add_argument("options", type=json.loads, help="JSON: kind, epsilon, delta, ...")
    commands.choices["serve"].add_argument("--port", type=int, default=8000)
    commands.choices["close"].add_argument("--round", type=int, required=True, help="which; see /question")
    told = parser.parse_args()
    if told.command == "serve":
        # No access log: addresses and times of requests would tell who is in the sample.
        uvicorn.run(app_of(told.folder), host="127.0.0.1", port=told.port, access_log=False, log_level="warning")
        return
    import rounds  # not needed to serve: it loads the whole library

    if told.command == "create":
        rounds.create(told.folder, told.options, told.ledger)
        return
    now = rounds.close(told.folder, told.round)
    print(f"Round {now.round} is {now.state}." if now.state != "done" else f"Published in {told.folder / 'published'}.")


if __name__ == "__main__":
    main()
