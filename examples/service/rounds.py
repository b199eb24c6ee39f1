"""Start a collection, and close its rounds: each spends from the ledger first, and publishes once.

Sample-and-threshold has no noise of the server: the messages of a closed round lead to one release. So a close that
was killed at any moment is simply run again. A round is closed in four steps:

1. The ledger is charged for the whole collection, unless it holds the entry of this collection already. Where it cannot
   pay the round stays open.
2. The round takes no more messages. From here on they do not change.
3. What reached the threshold is published: the next question, or the release at the end. The messages are deleted.
4. What is left of them in the log of the database is removed.

Steps 1 and 2 happen under the lock of the database, and so does step 3, in one transaction. So of two processes that
close the same round one does it, and the other finds it done. A crash after 1 leaves a spend, which the next run finds.
"""

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from store import Collection, Store, Survivor

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidValue, LedgerError
from dpsieve.federated import Histogram, Quantiles, TrieHeavyHitters, plan
from dpsieve.federated.client import padded_message
from dpsieve.privacy import Approximate

Collector = Histogram | TrieHeavyHitters | Quantiles


def collector(options: dict[str, Any]) -> Collector:
    """Return what asks and counts: 'histogram', 'heavy_hitters' or 'quantiles', with the options of the library."""
    others = {name: value for name, value in options.items() if name != "kind"}
    kind = options.get("kind")
    try:
        if kind == "histogram":
            counted = {name: others.pop(name) for name in ("values", "longest", "collection") if name in others}
            return Histogram(plan(**others), **counted)
        if kind == "heavy_hitters":
            return TrieHeavyHitters(**others)
        if kind == "quantiles":
            return Quantiles(**others)
    except DpsieveError:
        raise
    except TypeError as error:  # an option that is missing or not known
        raise InvalidValue(f"options: {error}. Pass kind and the options of the library.") from None
    raise InvalidValue("options: kind must be one of histogram, heavy_hitters, quantiles. Pass it with the others.")


def create(folder: Path, options: dict[str, Any], ledger: Path) -> None:
    """Start a collection in a new folder; nothing is spent before its first round is closed."""
    name = str(uuid.uuid4())  # devices charge their budgets by this name
    made = collector({**options, "collection": name})
    ds.Ledger.open(ledger).check(made.plan)
    # The rate and the threshold are kept: another version of the library might choose others in the next round.
    chosen = {"rate": made.plan.rate} if isinstance(made, Histogram) else {"coin": made.plan.coin}
    first = made.question if isinstance(made, Histogram) else next(made.questions())
    whole = {**options, **chosen, "threshold": made.plan.threshold, "collection": name}
    Store.create(folder, name, whole, ledger.absolute(), _asked(made, first))


def close(folder: Path, number: int) -> Collection:
    """Close this round, unless that is done, and return where the collection is now."""
    with Store(folder) as store:
        with store.writing():
            now = store.now()
            if not 1 <= number <= now.round:
                raise InvalidValue(f"--round: round {now.round} is {now.state}, and there is no other. Close that one.")
            if (now.round, now.state) == (number, "open"):
                _charge(now)
                store.freeze()
        with store.writing():
            now = store.now()
            if (now.round, now.state) == (number, "closed"):
                _publish(store, now, folder / "published")
        store.leave_nothing()
        return store.now()


def _charge(now: Collection) -> None:
    """Spend what the whole collection costs, unless that is done."""
    ledger, note = ds.Ledger.open(now.ledger), f"collection {now.name}"
    cost = collector(json.loads(now.options)).plan
    paid = [entry for entry in ledger.history() if entry.note == note]
    if not paid:
        ledger.spend(cost, note)
        return
    promise = cost.guarantee.for_replacement() if ledger.budget.neighbours == "replace" else cost.guarantee
    whole, curves = Approximate(promise.epsilon, promise.delta), ((), tuple(cost.spends()))
    if any(entry.spend != whole or entry.curves not in curves for entry in paid):
        fix = "Find out who wrote it, and create the collection anew."
        raise LedgerError(f"ledger: the entry of this collection has another cost than the collection. {fix}")


def _publish(store: Store, now: Collection, place: Path) -> None:
    """Count, and publish what reached the threshold; the caller holds the lock of the database."""
    made = collector(json.loads(now.options))
    release, survivors, question = _counted(made, store, now.round)
    if release is not None and not place.exists():  # where it exists it is the same one
        release.save(place)
    store.publish(survivors, None if question is None else _asked(made, question))


def _counted(made: Collector, store: Store, number: int) -> tuple[Any, list[Survivor], Any]:
    """Count the reports of a round; return the release or None, what survived, and the next question or None."""
    if isinstance(made, Histogram):
        return made.tally().add(store.messages()).release(), [], None
    questions = made.questions()
    next(questions)
    for earlier in range(1, number):  # what was published stands for the messages that led to it
        prefixes, ended, tokens = zip(*store.survivors(earlier), strict=True)
        made.count(pa.array(prefixes), pa.array(ended).to_numpy(False), pa.array(tokens).to_numpy())
        next(questions)
    made.take(store.messages())
    question = next(questions, None)
    level = made.trie.filter(pc.equal(made.trie["level"], number)).select(["prefix", "ended", "token"])
    survivors = list(zip(*level.to_pydict().values(), strict=True))
    return made.release() if question is None else None, survivors, question


def _asked(made: Collector, question: Any) -> dict[str, Any]:
    """Return what a client needs to answer, and the size of all messages: reports and silence look the same."""
    kind = "value" if isinstance(made, Histogram) else "prefix"
    asked = {"kind": kind, "question": question.to_json(), "size": len(padded_message(question, None))}
    return {**asked, "grid": made.grid.to_json()} if isinstance(made, Quantiles) else asked
