"""How many keys may a unit add? What a bound that is chosen privately finds, beside every fixed one.

    DPSIEVE_DATA=folder .venv/bin/python experiments/bounding.py [word of a name ...]

On real sets (see discovery_data.py), delta 1e-8. The keys of each unit are shuffled once, and a bound m keeps the first
m of them. Keys out are expected numbers, exactly: the sum of the reporting probabilities of the bounded counts, under
the mechanism that `auto` takes for m. A fixed m has the whole epsilon. `max_keys_per_unit="auto"` pays 2 % of it for
the histogram, which is drawn 200 times: its expected keys out are the mean over these draws, and the worst draw. Pairs
kept are of at most 1,000 keys a unit. The interval is that which a release reports: after 'auto' chose the bound by the
same histogram, and for the fixed bound 10 with `report_coverage`, where nothing is chosen. Each set is also shown with
one in 20 of its units, where the noise of the histogram matters more.

The third table is about counts, at epsilon 1: the mean error of the 100 keys that most units hold (a key that is not
released counts as 0), and which part of the released intervals holds the number of all units with the key, not only of
those that kept it; means of 10 releases. With `goal="counts"` keys are found first, and then counted.
"""

from collections import Counter
from functools import lru_cache

import numpy as np
from discovery_data import MORE, bounded, chosen, load
from rich.console import Console
from rich.table import Table

from dpsieve.channels.channel import ReportedCounts
from dpsieve.engines.true_data import Pairs
from dpsieve.jobs.mechanisms import CANDIDATES, choose_bound, choose_mechanism, histogram_for
from dpsieve.jobs.release import plan_release
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.noise.keys_per_unit import MOST, Coverage, units_by_size
from dpsieve.privacy.composed import remaining
from dpsieve.privacy.contribution import Contribution
from dpsieve.randomness.source import resolve
from dpsieve.types import Ints

EPSILONS, DELTA, DRAWS, PARTS = (0.3, 1.0, 3.0), 1e-8, 200, (1, 20)


def request(epsilon: float, **more: object) -> ReleaseRequest:
    """Return the request for a release."""
    return ReleaseRequest(key=("key",), privacy_unit="unit", epsilon=epsilon, delta=DELTA, **more)  # type: ignore[arg-type]


@lru_cache
def channel(epsilon: float, bound: int, after_choice: bool) -> ReportedCounts:
    """Return what each key goes through: with all of epsilon, or with what the choice of the bound leaves."""
    asked = request(epsilon, max_keys_per_unit="auto" if after_choice else bound)
    last = choose_mechanism(asked, Contribution(bound), first=histogram_for(asked)).mechanism.last
    assert isinstance(last, ReportedCounts)
    return last


def share_kept(sizes: Ints, bound: int, most: int = MOST) -> float:
    """Return the true share of pairs, of at most `most` a unit, that a bound keeps."""
    return float(np.minimum(sizes, bound).sum() / np.minimum(sizes, most).sum())


def told(asked: ReleaseRequest, sizes: Ints) -> tuple[int, Coverage | None]:
    """Return the bound of one draw of the histogram, and what is said about it."""
    histogram = histogram_for(asked)
    assert histogram is not None
    drawn = histogram.draw(units_by_size(sizes), resolve(None))
    left = remaining(asked.epsilon, histogram.guarantee.epsilon)
    bound = choose_bound(drawn, left, asked.delta) if asked.chooses_bound else asked.contribution.keys
    return bound, drawn.kept(bound)


def holds(draws: list[tuple[int, Coverage | None]], sizes: Ints) -> float:
    """Return how often the interval, where one is told, holds the true share."""
    found = [k.low <= share_kept(sizes, bound, k.most) <= k.high for bound, k in draws if k is not None]
    return float(np.mean(found)) if found else float("nan")


def compare(label: str, held: Pairs, found: Table, kept: Table) -> None:
    """Add the rows of one set."""
    sizes = held.sizes
    counts = {m: held.bound(m).count().frequencies for m in CANDIDATES}
    for epsilon in EPSILONS:
        fixed, left = (
            {m: float(channel(epsilon, m, after).reporting_probability(counts[m]).sum()) for m in CANDIDATES}
            for after in (False, True)
        )
        draws = [told(request(epsilon, max_keys_per_unit="auto"), sizes) for _ in range(DRAWS)]
        out = [left[bound] for bound, _ in draws]
        best = f"{100 * np.mean(out) / max(fixed.values()):.1f} %"
        numbers = [f"{value:,.0f}" for value in (*fixed.values(), np.mean(out), min(out))]
        found.add_row(label, f"{epsilon:g}", *numbers, best)
        bounds = Counter(bound for bound, _ in draws)
        true = np.mean([share_kept(sizes, bound) for bound, _ in draws])
        said = np.mean(
            [(each.share, each.low, each.high) for _, each in draws if each is not None] or [(np.nan,) * 3], axis=0
        )
        plain = [told(request(epsilon, max_keys_per_unit=10, report_coverage=True), sizes) for _ in range(DRAWS)]
        shown = [f"{100 * share:.1f}" for share in (true, *said, holds(draws, sizes), holds(plain, sizes))]
        kept.add_row(label, f"{epsilon:g}", ", ".join(f"{m} ({n})" for m, n in bounds.most_common()), *shown)


def released(held: Pairs, bound: int | None, after_choice: bool) -> tuple[Ints, Ints, Ints, Ints]:
    """Return places of keys with count, low and high: under a bound, or by two steps."""
    if bound is None:
        made = plan_release(request(1.0, goal="counts"), None).finish(held, resolve(None))
        place = {key: at for at, key in enumerate(held.keys.column(0).to_pylist())}
        columns = [np.array(made.table.column(name)) for name in ("count", "low", "high")]
        return np.array([place[key] for key in made.keys.column(0).to_pylist()]), columns[0], columns[1], columns[2]
    kept, each = held.bound(bound).counts(), channel(1.0, bound, after_choice)
    some = np.flatnonzero(kept)
    tokens = each.draw(kept[some])
    out = np.flatnonzero(tokens)
    read = each.read(tokens[out])
    return some[out], read.count, read.low, read.high


def compare_counts(name: str, held: Pairs, table: Table) -> None:
    """Add the rows of one set."""
    true = held.counts()
    common = np.argsort(-true, kind="stable")[:100]
    ways: dict[str, int | str | None] = {f"at most {m}": m for m in (1, 10, 50)}
    for label, way in {**ways, "auto": "auto", "goal='counts'": None}.items():
        found = []
        for _ in range(10):
            bound = told(request(1.0, max_keys_per_unit="auto"), held.sizes)[0] if way == "auto" else way
            places, count, low, high = released(held, bound, way == "auto")  # type: ignore[arg-type]
            guess = np.zeros(len(true))
            guess[places] = count
            inside = (low <= true[places]) & (true[places] <= high)
            found.append((len(places), np.abs(guess - true)[common].mean(), 100 * inside.mean()))
        keys, error, holds_true = np.mean(found, axis=0)
        table.add_row(name, label, f"{keys:,.0f}", f"{error:,.1f}", f"{holds_true:.0f} %")


def main() -> None:
    """Print three tables: keys out, pairs kept, and errors of counts."""
    counts = Table(title="counts at epsilon 1, delta 1e-8")
    for heading in ("data", "keys a unit", "keys out", "mean error of the top 100", "intervals that hold all units"):
        counts.add_column(heading, justify="right")
    found = Table(title="expected keys out, delta 1e-8")
    kept = Table(title="share of pairs kept, and how often the interval holds it")
    for name in ("data", "epsilon", *(f"{m:,}" for m in CANDIDATES), "auto: mean", "worst draw", "of the best"):
        found.add_column(name, justify="right")
    for name in (
        "data",
        "epsilon",
        "bounds chosen (draws)",
        "true",
        "told",
        "low",
        "high",
        "holds",
        "report_coverage, 10",
    ):
        kept.add_column(name, justify="right")
    for name in chosen([*MORE, "Amazon Magazine"]):
        held = bounded(load(name))
        compare_counts(name, held, counts)
        for part in PARTS:
            few = held.starts[: 1 + (len(held.starts) - 1) // part]
            label = name if part == 1 else f"1/{part} of it"
            compare(label, Pairs(held.keys, few, held.key_numbers[: few[-1]]), found, kept)
    console = Console(width=170)
    console.print(found)
    console.print(kept)
    console.print(counts)


if __name__ == "__main__":
    main()
