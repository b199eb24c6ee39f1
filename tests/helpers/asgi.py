"""Requests to an ASGI application in this process: no server, no port."""

import asyncio
from types import SimpleNamespace


def ask(app, path="/", *, method="GET", query="", headers=(), body=b"", client=("127.0.0.1", 50_000)):
    """Return the status, the headers (by lower-case name) and the body of the answer."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers], "client": client,
        "server": ("127.0.0.1", 1),
    }  # fmt: skip
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return SimpleNamespace(
        status=start["status"], headers=found, body=b"".join(part.get("body", b"") for part in rest).decode()
    )
