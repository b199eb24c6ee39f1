"""What tries cost exactly, and what they are charged: all small populations, all neighbours, all outputs.

Strings over two symbols, up to as many symbols as there are levels; for each population of up to some clients and each
neighbour, the distribution of everything that the trie tells is computed and compared (hockey-stick divergence at
epsilon, both directions). 'reached' is the largest of these, 'charged' is what plans use: `pruned` for rounds, and
known or secret levels for cohorts. 'composed' is the charge for rounds that do not prune. Then public numbers: how many
clients a string needs to be found half of the time, by each charge.
"""

import itertools
import math
from collections import Counter, defaultdict

from experiment import Experiment, Plot, Row, Verdict, between, column, group, judge_claim, pick

from dpsieve.federated import level_plan
from dpsieve.federated.plans.levels import LevelPlan
from dpsieve.validate import NEIGHBOURS

SETTINGS = ((2, 0.3, 2, 5), (2, 0.5, 2, 5), (2, 0.3, 3, 6), (3, 0.4, 2, 4))  # levels, coin, threshold, clients
EPSILONS = (0.5, 1.0)
Report = tuple[int, str, bool]
Law = dict[tuple[tuple[int, str, bool, int], ...], float]


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


def costs(small: bool) -> list[Row]:
    """Return what is reached and charged in each setting."""
    settings = ((2, 0.3, 2, 3),) if small else SETTINGS
    return [row for setting in settings for row in enumerated(*setting)]


def judge_costs(rows: list[Row]) -> list[Verdict]:
    """Judge the charges: none is exceeded, and how much of each is reached."""
    shares = {charge: column(part, "share") for (charge,), part in group(rows, "charge")}
    shown = ", ".join(f"{charge} {between(share)}" for charge, share in shares.items())
    pruned, composed = (column(pick(rows, charge=charge), "charged") for charge in ("pruned", "composed"))
    return [
        judge_claim(
            "Lemma 7: a trie of L levels costs L histograms at most",
            f"the share of each charge that is reached: {shown}",
            max(share.max() for share in shares.values()) <= 1 + 1e-4, "neighbours reach more than is charged",
        ),
        judge_claim(
            "Section 4: the proof does not need that cells without a parent are left out",
            f"leaving them out, and charging for it, costs {between(pruned / composed)} times the composition",
            (pruned <= composed).all(), "pruning is charged more", better=(pruned < composed).any(),
        ),
    ]  # fmt: skip


def needed(small: bool) -> list[Row]:
    """Return how many clients a string needs to be found half of the time, by each charge, delta 1e-8."""
    rows: list[Row] = []
    for epsilon, levels in itertools.product((1.0,) if small else (0.5, 1.0, 2.0), (2, 5) if small else (2, 5, 10, 20)):
        composed, pruned = (level_plan(epsilon, 1e-8, levels, pruned=pruned) for pruned in (False, True))
        known, secret = (
            level_plan(epsilon, 1e-8, levels, protocol="cohorts", secret_levels=one) for one in (False, True)
        )
        rows.append({
            "epsilon": epsilon, "levels": levels, "rounds composed": composed.half, "rounds pruned": pruned.half,
            "cohorts known": known.half, "cohorts secret": secret.half,
        })  # fmt: skip
    return rows


def judge_needed(rows: list[Row]) -> list[Verdict]:
    """Judge how the number of clients grows with the levels."""
    pruned = column(rows, "rounds pruned") / column(rows, "rounds composed")
    part = [row for row in rows if row["epsilon"] == 1]
    grown, levels = part[-1]["rounds pruned"] / part[0]["rounds pruned"], part[-1]["levels"] / part[0]["levels"]
    return [
        judge_claim(
            "Lemma 7: (L epsilon, L delta) for L levels, so a string needs about L times the clients",
            f"{grown:.1f} times the clients for {levels:g} times the levels at epsilon 1; pruning needs "
            f"{between(pruned)} times the clients of a composition", grown <= levels, "it needs more",
            better=grown < 0.9 * levels,
        )
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        "trie_costs", "sample-and-threshold", "Lemma 7", "delta reached by the worst neighbours, and charged", 100,
        costs, judge_costs,
    ),
    Experiment(
        "trie_clients", "sample-and-threshold", "Lemma 7", "clients that a string needs, delta 1e-8", 60, needed,
        judge_needed,
        (Plot("Clients of a string that is found half of the time", "levels",
              ("rounds composed", "rounds pruned", "cohorts known", "cohorts secret"), panels=("epsilon",), log="xy"),),
    ),
)  # fmt: skip
