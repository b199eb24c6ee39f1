"""A client of the service: it asks for the question, answers it once, and sends the same message until it arrives.

    python examples/service/client.py 127.0.0.1:8000 tea --budget device.budget --kept tea.json

It needs `dpsieve.federated.client` and the standard library. Run it again for the next round. The budget is that of the
device, for all collections; what it refuses is answered by a dummy of the same size.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from dpsieve.errors import DpsieveError, InvalidValue, UnreadableData

from dpsieve.federated.client import (  # isort: skip
    Budget, FileStorage, Grid, Question, ValueQuestion, client_answer, padded_message, value_answer,
)  # fmt: skip

_ADDRESS = re.compile(r"(?:http://)?((?:[\w-]{1,63}\.)*[\w-]{1,63}|\[[0-9a-fA-F:]+\]):([0-9]{1,5})/?", re.ASCII)


class Kept(dict[str, Any]):
    """Messages that wait for their acknowledgement, in a file that only its owner reads; later, that they were sent."""

    def __init__(self, place: FileStorage) -> None:
        try:
            content = json.loads(place.get() or "{}")
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise UnreadableData("--kept: the file holds no answers of a client. Pass the file of this client alone.")
        super().__init__(content)
        self._place = place

    @classmethod
    @contextmanager
    def of_one_process(cls, path: Path) -> Iterator["Kept"]:
        """Keep others out until the end: of two that answer, one would send a dummy in place of the message."""
        if not path.resolve().parent.is_dir():
            raise UnreadableData("--kept: its folder does not exist. Make the folder, or pass another file.")
        place = FileStorage(path)
        with ExitStack() as stack:
            try:
                stack.enter_context(place.lock(wait=False))
            except BlockingIOError:
                raise UnreadableData("--kept: another client uses this file. Wait until it has ended.") from None
            yield cls(place)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._place.put(json.dumps(self))


def message_for(
    asked: dict[str, Any], value: Any, kept: MutableMapping[str, Any], *, budget: Budget | None
) -> bytes | None:
    """Return what a client with this value sends: its report, or silence, of one size; None if that is delivered.

    The same at every call. The budget has recorded the question before the message is made; if the process dies in
    between, the question counts as answered, and the next call makes a dummy.
    """
    name = _name(asked)
    if name not in kept:
        kept[name] = _message(asked, value, budget).decode()
    return str(kept[name]).encode() or None


def delivered(asked: dict[str, Any], kept: MutableMapping[str, Any]) -> None:
    """Forget a message that arrived, or whose round is over: nothing of it stays on the device."""
    kept[_name(asked)] = ""


def _name(asked: dict[str, Any]) -> str:
    return f"{asked['collection']} {asked['round']}"


def _message(asked: dict[str, Any], value: Any, budget: Budget | None) -> bytes:
    if asked["kind"] == "value":
        asks = ValueQuestion.from_json(asked["question"])
        value = _number(int, value) if asks.kind == "integers" else value
        return padded_message(asks, value_answer(asks, value, budget=budget))
    question = Question.from_json(asked["question"])
    if "grid" in asked:
        value = Grid.from_json(asked["grid"]).string(_number(float, value))
    return padded_message(question, client_answer(question, value, budget=budget))


def _number(kind: type[int] | type[float], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InvalidValue("value must be a number, as this collection asks for numbers. Pass one.") from None


class Service:
    """A connection to the service, made again after a failure, for some seconds."""

    def __init__(self, address: str, patience: float = 60.0) -> None:
        parts = _ADDRESS.fullmatch(address)
        if parts is None or int(parts[2]) > 65535:
            raise InvalidValue("address must be a host and a port, without https. Pass one such as 127.0.0.1:8000.")
        self._connection, self._patience = HTTPConnection(parts[1], int(parts[2]), timeout=10), patience

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self) -> dict[str, Any]:
        """Return the question of the open round, or where the collection is if none is open."""
        try:
            asked = json.loads(self._request("GET", "/question")[1])
        except ValueError:
            asked = None
        if not isinstance(asked, dict) or not {"collection", "round", "state"} <= asked.keys():
            raise UnreadableData("address: what answers there is not this service. Pass the address of the service.")
        return asked

    def send(self, asked: dict[str, Any], message: bytes) -> bool:
        """Send a message until it is acknowledged; False where its round is over."""
        status = self._request("POST", f"/rounds/{asked['round']}/reports", message)[0]
        if status not in (204, 409):
            raise UnreadableData("address: the service cannot take the answer now. It is kept: run this again later.")
        return status == 204

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        wait, until, told = 0.05, time.monotonic() + self._patience, False
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
                    fix = "Start the service, or pass the address where it is."
                    raise UnreadableData(f"address: no service answers there. {fix}") from None
            if not told:
                print(f"The service cannot be reached. Trying again for {self._patience:g} seconds.", file=sys.stderr)
            told = True
            time.sleep(wait)
            wait = min(2 * wait, 5.0)


def main() -> None:
    """Answer the open question."""
    parser = argparse.ArgumentParser(description="Answer the question of a service, once.")
    parser.add_argument("address", help="such as 127.0.0.1:8000")
    parser.add_argument("value", help="what this client has")
    parser.add_argument("--kept", type=Path, required=True, help="a file for messages under way, of this client alone")
    parser.add_argument("--budget", type=Path, required=True, help="the file of this device's budget")
    limits = {"epsilon": 4.0, "delta": 1e-6, "exposure": 0.95}
    for name, limit in limits.items():
        parser.add_argument(f"--{name}", type=float, default=limit, help=f"of the budget; default: {limit:g}")
    parser.add_argument("--days", type=int, help="of the budget; default: for ever")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to try again where the service is away")
    told = parser.parse_args()
    try:
        with Service(told.address, told.patience) as service, Kept.of_one_process(told.kept) as kept:
            given: Any = {name: getattr(told, name) for name in (*limits, "days")}
            _answer(service, told.value, kept, Budget(told.budget, **given))
    except (DpsieveError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _answer(service: Service, value: str, kept: Kept, budget: Budget) -> None:
    asked = service.ask()
    if asked["state"] != "open":
        print(f"Nothing is asked: round {asked['round']} is {asked['state']}.")
        return
    if kept.get(_name(asked)):
        print("An answer to this round is kept: it is sent again, whatever the value is now.")
    message = message_for(asked, value, kept, budget=budget)
    if message is None:
        print("This round is answered.")
        return
    print("Answered." if service.send(asked, message) else "The round is over.")
    delivered(asked, kept)


if __name__ == "__main__":
    main()
