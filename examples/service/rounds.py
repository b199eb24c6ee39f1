"""Start a collection, and close its rounds: each spends from the ledger first, and publishes once.

Sample-and-threshold has no noise of the server: the reports of a closed round lead to one release. So a close that was
killed at any moment is simply run again. A round is closed in three steps:

1. It takes no more reports. From here on they do not change.
2. The ledger is charged for the whole collection, unless it holds the entry of this collection already.
3. What reached the threshold is published: the next question, or the release at the end. The reports are deleted.

Steps 2 and 3 happen under the lock of the database, and step 3 is one transaction. So of two processes that close the
same round one does it, and the other finds it done. A crash between 2 and 3 leaves a spend, which the next run finds.
"""

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from store import Collection, Store, Survivor

import dpsieve as ds
from dpsieve.federated import Histogram, Quantiles, TrieHeavyHitters, plan

Collector = Histogram | TrieHeavyHitters | Quantiles


def collector(kind: str, **options: Any) -> Collector:
    """Return what asks and counts: 'histogram', 'heavy_hitters' or 'quantiles', with the options of the library."""
    if kind == "histogram":
        counted = {name: options.pop(name) for name in ("values", "longest") if name in options}
        return Histogram(plan(**options), **counted)
    kinds: dict[str, Any] = {"heavy_hitters": TrieHeavyHitters, "quantiles": Quantiles}
    if kind not in kinds:
        raise SystemExit("kind is not known. Choose histogram, heavy_hitters or quantiles.")
    made: Collector = kinds[kind](**options)
    return made


def create(folder: Path, options: dict[str, Any], ledger: Path) -> None:
    """Start a collection in a new folder; nothing is spent before its first round is closed."""
    made = collector(**options)
    ds.Ledger.open(ledger).check(_cost(made))
    # The rate and the threshold are kept: another version of the library might choose others in the next round.
    chosen = {"rate": made.plan.rate} if isinstance(made, Histogram) else {"coin": made.plan.coin}
    first = made.question if isinstance(made, Histogram) else next(made.questions())
    whole = {**options, **chosen, "threshold": made.plan.threshold}
    Store.create(folder, str(uuid.uuid4()), whole, ledger.absolute(), _asked(made, first))


def close(folder: Path, number: int) -> Collection:
    """Close this round, unless that is done, and return where the collection is now."""
    with Store(folder) as store:
        store.freeze(number)
        with store.writing():
            now = store.now()
            if (now.round, now.state) == (number, "closed"):
                _publish(store, now, folder / "published")
        store.empty_log()
        return store.now()


def _publish(store: Store, now: Collection, place: Path) -> None:
    """Spend, count, and publish what reached the threshold; the caller holds the lock of the database."""
    made = collector(**json.loads(now.options))
    ledger, note = ds.Ledger.open(now.ledger), f"collection {now.name}"
    if all(entry.note != note for entry in ledger.history()):
        ledger.spend(_cost(made), note)
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
    for earlier in range(1, number):  # what was published stands for the reports that led to it
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
    longest = made.buckets.longest if isinstance(made, Histogram) else made.strings.max_length
    kind = "value" if isinstance(made, Histogram) else "prefix"
    asked = {"kind": kind, "question": question.to_json(), "size": 6 * longest + 128}  # \u1234 is 6 bytes
    return {**asked, "grid": made.grid.to_json()} if isinstance(made, Quantiles) else asked


def _cost(made: Collector) -> Any:
    return made.plan.channel if isinstance(made, Histogram) else made.plan
