"""A client of the service: it asks for the question, answers it once, and sends the same message until it arrives.

    python examples/service/client.py 127.0.0.1:8000 tea --kept tea.json

It needs `dpsieve.federated.client` and the standard library. Run it again for the next round.
"""

import argparse
import json
import os
import time
from collections.abc import MutableMapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from dpsieve.federated.client import Grid, Question, ValueQuestion, client_answer, client_level, value_answer


class Kept(dict[str, Any]):
    """Answers in a file that only its owner reads, on disk before the first one is sent: coins are tossed once."""

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {})
        self._path = path

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        working = self._path.with_name(f".{self._path.name}.partial")
        with open(os.open(working, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            json.dump(self, file)
            file.flush()
            os.fsync(file.fileno())
        working.replace(self._path)


def message_for(asked: dict[str, Any], value: Any, kept: MutableMapping[str, Any]) -> bytes:
    """Return what a client with this value sends: its report, or silence, of one size; the same at every call."""
    name = f"{asked['collection']} {asked['round']}"
    if name not in kept:
        report = _report(asked, value, kept)
        kept[name] = "null" if report is None else report.to_bytes().decode()
    return str(kept[name]).encode().ljust(asked["size"])


def _report(asked: dict[str, Any], value: Any, kept: MutableMapping[str, Any]) -> Any:
    if asked["kind"] == "value":
        return value_answer(ValueQuestion.from_json(asked["question"]), value)
    question = Question.from_json(asked["question"])
    if asked["collection"] not in kept:  # the level of a client, where each answers at one; else unused
        kept[asked["collection"]] = client_level(question.levels)
    if "grid" in asked:
        value = Grid.from_json(asked["grid"]).string(float(value))
    return client_answer(question, value, level=kept[asked["collection"]])


class Service:
    """A connection to the service, made again after a failure, for some seconds."""

    def __init__(self, address: str, patience: float = 60.0) -> None:
        self._connection, self._patience = HTTPConnection(address, timeout=10), patience

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self) -> dict[str, Any]:
        """Return the question of the open round, or where the collection is if none is open."""
        return dict(json.loads(self._request("GET", "/question")[1]))

    def send(self, asked: dict[str, Any], message: bytes) -> bool:
        """Send a message until it is acknowledged; False where its round is over, or the service cannot take it."""
        return self._request("POST", f"/rounds/{asked['round']}/reports", message)[0] == 204

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        wait, until = 0.05, time.monotonic() + self._patience
        while True:
            try:
                self._connection.request(method, path, body)
                response = self._connection.getresponse()
                status, content = response.status, response.read()
                if status < 500 or time.monotonic() > until:
                    return status, content
            except (OSError, HTTPException):
                self._connection.close()
                if time.monotonic() > until:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, 5.0)


def main() -> None:
    """Answer the open question."""
    parser = argparse.ArgumentParser(description="Answer the question of a service, once.")
    parser.add_argument("address", help="such as 127.0.0.1:8000")
    parser.add_argument("value", help="what this client has")
    parser.add_argument("--kept", type=Path, required=True, help="a file for answers, of this client alone")
    told = parser.parse_args()
    with Service(told.address) as service:
        asked = service.ask()
        if asked["state"] != "open":
            print(f"Nothing is asked: round {asked['round']} is {asked['state']}.")
        elif service.send(asked, message_for(asked, told.value, Kept(told.kept))):
            print("Answered.")
        else:
            print("The round is over.")


if __name__ == "__main__":
    main()
