"""What the default release is worth, beside its two goals, every fixed bound on keys per unit, and `top_k`.

    DPSIEVE_DATA=folder .venv/bin/python experiments/bounding.py [word of a name ...]
    .venv/bin/python experiments/bounding.py made

The folder is described in discovery_data.py; RELEASES in the environment sets the number of releases. With `made`, sets
are made up: log-normal, constant or Pareto numbers of keys per unit, and keys by a Zipf-Mandelbrot law.

On real sets (see discovery_data.py) and on their first 500, 2,000 and 10,000 units; epsilon 1, delta 1e-8. A reader
takes a count for the number of units that hold the key, so errors and intervals are compared with all data, not with
what bounding kept. For each set and goal:

- bounds: those that were chosen in 15 releases, with how often (f3: keys found first, then counted with three; t14: in
  two steps, counted with 14);
- keys: released, and as a share of those of `goal="keys"`;
- error: mean error of the 100 keys that most units hold; a key that is not released counts as 0, and one whose count
  is 'at most' as the estimate behind it. Behind it, the error over that of the best fixed bound or of `goal="counts"`,
  whichever is less;
- inside: how many of the released keys among these 100 have the true number of units inside their interval;
- spread: the largest over the smallest count of the most common key in these releases, where it was always released;
- coverage: in how many releases a share of all pairs is stated, and how often its interval holds the true share;
- top 20, top 100: missing mass, which is the share of the pairs of the true top k that the k keys miss: of
  `release.top(k)`, and behind it, for the default, of `top_k`.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from discovery_data import MORE, RNG, bounded, chosen, load
from rich.console import Console
from rich.table import Table

from dpsieve.channels.channel import ReportedCounts
from dpsieve.engines.true_data import FromPairs, Pairs
from dpsieve.jobs.bounds import CANDIDATES
from dpsieve.jobs.discover import plan_top_k
from dpsieve.jobs.key_set_request import TopKRequest
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.release import plan_release
from dpsieve.jobs.request import Goal, ReleaseRequest
from dpsieve.privacy.guarantee import Contribution
from dpsieve.publication.release import Release
from dpsieve.randomness.source import resolve
from dpsieve.types import Floats, Ints

EPSILON, DELTA, CUTS, FIXED, TOPS = 1.0, 1e-8, (500, 2_000, 10_000, None), 3, (20, 100)
RELEASES = int(os.environ.get("RELEASES", "15"))
GOALS: tuple[Goal, ...] = ("auto", "keys", "counts")


def log_normal(units: int, median: float, spread: float, most: int) -> Ints:
    """Return numbers of keys per unit."""
    return np.clip(np.round(median * np.exp(spread * RNG.standard_normal(units))), 1, most).astype(np.int64)


def pareto(units: int, power: float, most: int) -> Ints:
    """Return numbers of keys per unit with a long tail."""
    return np.clip(np.floor(RNG.random(units) ** (-1 / power)), 1, most).astype(np.int64)


# Sizes of units, and the keys, skew and flat head of the law of keys.
MADE: dict[str, tuple[Callable[[], Ints], int, float, int]] = {
    "about 3 keys": (lambda: log_normal(77_000, 3, 0.9, 600), 30_000, 1.0, 5),
    "50 keys each": (lambda: np.full(2_000, 50), 3_000, 1.0, 10),
    "about 15 keys": (lambda: log_normal(13_500, 15, 0.9, 2_000), 46_000, 0.9, 10),
    "a long tail": (lambda: pareto(37_000, 1.0, 1_500), 50_000, 1.05, 3),
    "common keys": (lambda: log_normal(60_000, 2, 0.8, 300), 8_000, 1.4, 2),
    "wide sizes": (lambda: log_normal(8_000, 30, 1.3, 3_000), 60_000, 1.1, 20),
    "flat keys": (lambda: log_normal(25_000, 6, 0.4, 300), 5_000, 0.7, 50),
    "mostly one key": (lambda: pareto(150_000, 2.2, 500), 20_000, 1.1, 5),
}


def made_up(name: str) -> Pairs:
    """Return a made-up set: each unit draws keys until it has as many different ones as it should."""
    sizes, keys, skew, head = MADE[name]
    cumulative = np.cumsum((np.arange(keys) + 1.0 + head) ** -skew)
    units = []
    for size in sizes():
        drawn: dict[int, None] = {}
        while len(drawn) < size:
            more = np.searchsorted(cumulative, RNG.random(2 * int(size)) * cumulative[-1])
            drawn |= dict.fromkeys(np.minimum(more, keys - 1).tolist())
        units.append(list(drawn)[:size])
    return Pairs.of(units)


def request(**more: object) -> ReleaseRequest:
    """Return the request for a release."""
    return ReleaseRequest(key=("key",), privacy_unit="unit", epsilon=EPSILON, delta=DELTA, **more)  # type: ignore[arg-type]


@lru_cache
def fixed_channel(bound: int) -> ReportedCounts:
    """Return what each key goes through under a fixed bound."""
    last = choose_mechanism(request(max_keys_per_unit=bound), Contribution(bound)).mechanism.last
    assert isinstance(last, ReportedCounts)
    return last


def error_of_fixed(held: Pairs, bound: int, true: Ints, common: Ints) -> float:
    """Return the mean error of the common keys under a fixed bound."""
    kept, channel = held.bound(bound).counts(), fixed_channel(bound)
    some = np.flatnonzero(kept)
    errors = []
    for _ in range(FIXED):
        tokens = channel.draw(kept[some]).tokens
        reported = np.flatnonzero(tokens)
        guess = np.zeros(len(true))
        guess[some[reported]] = channel.read(tokens[reported]).count
        errors.append(np.abs(guess - true)[common].mean())
    return float(np.mean(errors))


def released(goal: Goal, held: Pairs) -> Release:
    """Return one release of pairs in memory."""
    return plan_release(request(goal=goal), None).finish(FromPairs(held), resolve(None))


def bound_of(release: Release) -> str:
    """Return the chosen bound, such as '20', 'f3' or 't14' for two steps."""
    keys = release.mechanism.contribution_given(release.drawn).keys
    return {"divided_units": "f", "find_then_count": "t"}.get(release.mechanism.last.name, "") + str(keys)


def first_keys(release: Release, k: int) -> list[object]:
    """Return the k keys of a release with the largest counts."""
    return release.top(k).column(0).to_pylist() if len(release) else []


def missing(true: Ints, places: list[int], k: int) -> float:
    """Return the share of the pairs of the true top k that these keys miss."""
    return 1 - float(true[places].sum() / np.sort(true)[::-1][:k].sum())


def missing_of_top(held: Pairs, true: Ints, k: int) -> float:
    """Return the mean missing mass of `top_k`."""
    place = {key: at for at, key in enumerate(held.keys.column(0).to_pylist())}
    asked = TopKRequest(key=("key",), privacy_unit="unit", epsilon=EPSILON, delta=DELTA, k=k)  # type: ignore[arg-type]
    tables = [plan_top_k(asked, None).finish(FromPairs(held), resolve(None)).table for _ in range(RELEASES)]
    return float(np.mean([missing(true, [place[key] for key in table.column(0).to_pylist()], k) for table in tables]))


def measure(goal: Goal, held: Pairs, true: Ints, common: Ints) -> tuple[Counter[str], Floats]:
    """Return the bounds of several releases, and their measures."""
    place, total = {key: at for at, key in enumerate(held.keys.column(0).to_pylist())}, int(held.sizes.sum())
    rows, bounds = [], Counter[str]()
    for _ in range(RELEASES):
        release = released(goal, held)
        at = np.array([place[key] for key in release.keys.column(0).to_pylist()], np.int64)
        low, high = (np.array(release.table.column(name)) for name in ("low", "high"))
        guess = np.zeros(len(true))
        guess[at] = release.mechanism.reader(release.drawn).read(release.tokens).count
        inside = ((low <= true[at]) & (true[at] <= high))[np.isin(at, common)]
        bounds[bound_of(release)] += 1
        stated, keys = release.coverage, release.mechanism.contribution_given(release.drawn).keys
        share = np.minimum(held.sizes, keys).sum() / total
        holds = np.nan if stated is None or stated.key != "a key" else float(stated.low <= share <= stated.high)
        error = np.abs(guess - true)[common].mean()
        missed = [missing(true, [place[key] for key in first_keys(release, k)], k) for k in TOPS]
        rows.append((len(at), error, inside.mean() if len(inside) else np.nan, guess[common[0]], holds, *missed))
    return bounds, np.array(rows)


def main() -> None:
    """Print a table with a row for each set, cut and goal."""
    table = Table(title=f"releases at epsilon {EPSILON:g}, delta {DELTA:g}")
    for name in (
        "data",
        "units",
        "goal",
        "bounds",
        "keys",
        "error of top 100",
        "inside",
        "spread",
        "coverage",
        "top 20",
        "top 100",
    ):
        table.add_column(name, justify="right")
    made = "made" in sys.argv[1:]
    for name in MADE if made else chosen([*MORE, "Amazon Magazine"]):
        whole = bounded(made_up(name) if made else load(name))
        for units in [units for units in CUTS if units is None or units < len(whole.sizes)]:
            starts = whole.starts[: 1 + (units or len(whole.sizes))]
            held = Pairs(whole.keys, starts, whole.key_numbers[: starts[-1]])
            true = held.counts()
            common = np.argsort(-true, kind="stable")[:100]
            found = {goal: measure(goal, held, true, common) for goal in GOALS}
            best = min(error_of_fixed(held, bound, true, common) for bound in CANDIDATES)
            best = min(best, float(found["counts"][1][:, 1].mean()))
            most = max(1e-9, float(found["keys"][1][:, 0].mean()))
            tops = [missing_of_top(held, true, k) for k in TOPS]
            for goal, (bounds, rows) in found.items():
                keys = rows[:, 0].mean()
                first = rows[:, 3]
                stated = rows[~np.isnan(rows[:, 4]), 4]
                table.add_row(
                    name,
                    f"{len(held.sizes):,}",
                    goal,
                    ", ".join(f"{bound} ({n})" for bound, n in bounds.most_common(4)),
                    f"{keys:,.0f} ({keys / most:.2f})",
                    f"{rows[:, 1].mean():,.1f} ({rows[:, 1].mean() / best:.2f})",
                    f"{100 * np.nanmean(rows[:, 2]):.0f} %" if not np.isnan(rows[:, 2]).all() else "",
                    f"{first.max() / first.min():.2f}" if first.min() > 0 else "",
                    f"{len(stated)}: {100 * stated.mean():.0f} %" if len(stated) else "none",
                    *(
                        f"{missed:.3f}" + (f" ({top:.3f})" if goal == "auto" else "")
                        for missed, top in zip(rows[:, 5:].mean(axis=0), tops, strict=True)
                    ),
                )
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
