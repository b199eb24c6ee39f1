"""What tries cost exactly, and what they are charged: all small populations, all neighbours, all outputs.

    .venv/bin/python experiments/trie_costs.py

Strings over two symbols, up to as many symbols as there are levels; for each population of up to some clients and each
neighbour, the distribution of everything that the trie tells is computed and compared (hockey-stick divergence at
epsilon, both directions). 'reached' is the largest of these, 'charged' is what plans use: `pruned` for rounds, and
known or secret levels for cohorts. 'composed' is the charge for rounds that do not prune. Then public numbers: how many
clients a string needs to be found half of the time, by each charge. The numbers are kept in results/.
"""

import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.table import Table

from dpsieve.federated import level_plan
from dpsieve.federated.plans.levels import LevelPlan
from dpsieve.validate import NEIGHBOURS

RESULTS = Path(__file__).parent / "results"
SETTINGS = ((2, 0.3, 2, 5), (2, 0.5, 2, 5), (2, 0.3, 3, 6), (3, 0.4, 2, 4))  # levels, coin, threshold, clients
EPSILONS = (0.5, 1.0)
Report = tuple[int, str, bool]
Law = dict[tuple[tuple[int, str, bool, int], ...], float]
Row = dict[str, str | float]


def law(people: tuple[str, ...], protocol: str, coin: float, threshold: int, levels: int) -> Law:
    """Return the probability of everything that a trie of one symbol a level can tell."""
    reports: dict[tuple[tuple[Report, int], ...], float] = {(): 1.0}
    for string, number in Counter(people).items():
        for _ in range(number):
            after: dict[tuple[tuple[Report, int], ...], float] = defaultdict(float)
            for sent, weight in choices(string, protocol, coin, levels):
                for seen, mass in reports.items():
                    after[tuple(sorted((Counter(dict(seen)) + Counter(sent)).items()))] += mass * weight
            reports = after
    told: Law = defaultdict(float)
    for seen, mass in reports.items():
        told[survivors(dict(seen), threshold, levels)] += mass
    return told


def choices(string: str, protocol: str, coin: float, levels: int) -> list[tuple[list[Report], float]]:
    """Return what a client may send at all levels, and with which probability."""
    each = [(level, string[:level], len(string) <= level) for level in range(1, levels + 1)]
    if protocol == "cohorts":
        return [([], 1 - coin), *(([one], coin / levels) for one in each)]
    picks = itertools.product((False, True), repeat=levels)
    return [
        (
            [one for one, picked in zip(each, pick, strict=True) if picked],
            math.prod(coin if p else 1 - coin for p in pick),
        )
        for pick in picks
    ]


def survivors(seen: dict[Report, int], threshold: int, levels: int) -> tuple[tuple[int, str, bool, int], ...]:
    """Return the nodes that survive, with their counts: only what extends a survivor is asked for."""
    alive, kept = {""}, []
    for level in range(1, levels + 1):
        asked = {
            node: count
            for node, count in seen.items()
            if node[0] == level and len(node[1]) == level and node[1][:-1] in alive and count >= threshold
        }
        kept += [(*node, count) for node, count in asked.items()]
        alive = {prefix for _, prefix, ended in asked if not ended}
    return tuple(sorted(kept))


def apart(p: Law, q: Law, epsilon: float) -> float:
    """Return the larger divergence of both directions."""
    z = math.exp(epsilon)
    one = math.fsum(max(0.0, mass - z * q.get(out, 0.0)) for out, mass in p.items())
    return max(one, math.fsum(max(0.0, mass - z * p.get(out, 0.0)) for out, mass in q.items()))


def enumerated(levels: int, coin: float, threshold: int, most: int) -> list[Row]:
    """Return the worst neighbours among all populations, beside the charges."""
    kinds = ["".join(word) for length in range(1, levels + 1) for word in itertools.product("ab", repeat=length)]
    kinds = [kind for kind in kinds if kind.startswith("a")] + ["b"]  # all others are one of these, renamed
    rows: list[Row] = []
    for protocol in ("rounds", "cohorts"):
        laws = {
            people: law(people, protocol, coin, threshold, levels)
            for size in range(most + 1)
            for people in itertools.combinations_with_replacement(kinds, size)
        }
        worst = {(r, e): 0.0 for r in NEIGHBOURS for e in EPSILONS}
        for people, told in laws.items():
            less = {people[:i] + people[i + 1 :] for i in range(len(people))}
            changed = {tuple(sorted((*rest, kind), key=kinds.index)) for rest in less for kind in kinds}
            for relation, epsilon in worst:
                for other in less if relation == "add_remove" else changed:
                    found = apart(told, laws[other], epsilon)
                    worst[relation, epsilon] = max(worst[relation, epsilon], found)
        options = {"rounds": ("pruned", "composed"), "cohorts": ("secret", "known")}[protocol]
        plans = {
            name: LevelPlan(
                1.0, 0.9, protocol, levels, coin, threshold, pruned=name == "pruned", secret_levels=name == "secret"
            )
            for name in options
        }
        for (relation, epsilon), reached in worst.items():
            for name, plan in plans.items():
                charged = plan.delta(epsilon, relation)
                at: Row = {"levels": levels, "coin": coin, "threshold": threshold, "clients": most}
                at |= {"protocol": protocol, "charge": name, "neighbours": relation, "epsilon": epsilon}
                numbers = {"reached": reached, "charged": charged, "share": reached / charged}
                rows.append(at | {key: float(f"{value:.4g}") for key, value in numbers.items()})
    return rows


def needed() -> Table:
    """Return how many clients a string needs, by each charge."""
    table = Table(title="clients of a string that is found half of the time, delta 1e-8")
    for name in ("epsilon, levels", "rounds, composed", "rounds, pruned", "cohorts, known", "cohorts, secret"):
        table.add_column(name, justify="right")
    for epsilon, levels in itertools.product((0.5, 1.0, 2.0), (2, 5, 10, 20, 50)):
        plans = [level_plan(epsilon, 1e-8, levels, pruned=pruned) for pruned in (False, True)]
        plans += [level_plan(epsilon, 1e-8, levels, protocol="cohorts", secret_levels=one) for one in (False, True)]
        table.add_row(f"{epsilon:g}, {levels}", *(f"{plan.half:,}" for plan in plans))
    return table


def main() -> None:
    """Print both tables, and keep the first."""
    rows = [row for setting in SETTINGS for row in enumerated(*setting)]
    RESULTS.mkdir(exist_ok=True)
    pyarrow.csv.write_csv(pa.Table.from_pylist(rows), RESULTS / "trie_costs.csv")
    table = Table(title="what tries cost: delta reached by the worst neighbours, and charged")
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    console = Console(width=150)
    console.print(table)
    for charge in ("pruned", "composed", "secret", "known"):
        shares = [float(row["share"]) for row in rows if row["charge"] == charge]
        console.print(f"{charge}: {min(shares):.2f} to {max(shares):.2f} of the charge is reached")
    console.print(needed())


if __name__ == "__main__":
    main()
