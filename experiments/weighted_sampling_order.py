"""The order of keys in private weighted sampling: Theorem 5.1 and Corollary 6.1 of the published version.

Concordance is the probability that two keys come out in their true order. The first version has no such statement.
"""

import itertools
import math

import numpy as np
from experiment import Experiment, Row, Verdict, column, group, judge_claim, pick
from weighted_sampling import PAPER

import dpsieve as ds
from dpsieve.papers.weighted_sampling import concordance
from dpsieve.sampling.schemes import custom

BUDGETS = (1.0, 1e-3), (0.5, 0.01), (0.3, 1e-4), (2.0, 1e-6)
PAIRS = list(itertools.combinations(range(1, 13), 2))  # 66 of them
RATE, WITH_SCHEME = 0.005, (0.5, 0.01)


def best_concordance(epsilon: float, delta: float, low: int, high: int) -> float:
    """Return the largest concordance of frequencies low < high that any private channel without a scheme can have.

    Let x be the probability of the tokens above some place at frequency `low`. At the next frequency it is at most

        m(x) = min(1, e^epsilon x + delta, 1 - e^-epsilon (1 - x - delta)),

    so at `high` at most F(x), m taken high - low times; and x is at most pi, the reporting probability at `low`. The
    concordance is the area below the curve of these pairs, which goes from (pi, F(pi)) straight to (1, 1), as 'nothing'
    is one tie. F is concave, and (1 - m(x)) / (1 - x) is at most the slope of m, so the whole curve is concave: to stop
    at a smaller x, or to stay below F, only takes area away.
    """
    e = math.exp(epsilon)
    cross = (1 - delta) / (1 + e)  # where the second and the third bound of m are equal

    def m(x: float) -> float:
        return min(1.0, e * x + delta, 1 - (1 - x - delta) / e)

    def back(y: float) -> float:
        return (y - delta) / e if y <= m(cross) else 1 - delta - e * (1 - y)

    reported = 0.0
    for _ in range(low):
        reported = m(reported)
    bends = [0.0, reported]
    for bend in (cross, 1 - delta):
        for _ in range(high - low):
            bends += [bend] if 0 < bend < reported else []
            bend = back(bend)
    x = np.array(sorted(bends))
    y = x
    for _ in range(high - low):
        y = np.array([m(value) for value in y])
    return float(np.trapezoid(np.append(y, 1.0), np.append(x, 1.0)))


def beaten() -> tuple[float, float]:
    """Return the concordance of frequencies 1 and 2 with ppswor(0.005): of `optimal`, and of one below the scheme.

    The other one samples keys of frequency 1 never and all others as the scheme does; that is a scheme of its own, and
    `optimal` for it is private.
    """
    scheme = ds.ppswor(RATE)
    lower = custom(np.append(0.0, scheme.inclusion_range(2, 4000)))
    ours, other = (ds.channels.optimal(*WITH_SCHEME, one) for one in (scheme, lower))
    other.certify()
    return float(concordance(ours, 1, 2)), float(concordance(other, 1, 2))


def order(small: bool) -> list[Row]:
    """Compare `optimal` with the best of all channels, without a scheme and with one."""
    rows: list[Row] = []
    pairs = PAIRS[::8] if small else PAIRS
    for epsilon, delta in BUDGETS[:2] if small else BUDGETS:
        made = ds.channels.optimal(epsilon, delta), ds.channels.simple(epsilon, delta)
        ours, simple = (concordance(channel, *np.array(pairs).T) for channel in made)
        for (low, high), one, other in zip(pairs, ours.tolist(), simple.tolist(), strict=True):
            best = best_concordance(epsilon, delta, low, high)
            rows.append({"scheme": "none", "epsilon": epsilon, "delta": delta, "low": low, "high": high, "best": best,
                         "optimal": one, "short": abs(best - one), "simple": other})  # fmt: skip
    first, second = beaten()
    rows.append({"scheme": "ppswor(0.005)", "epsilon": WITH_SCHEME[0], "delta": WITH_SCHEME[1], "low": 1, "high": 2,
                 "best": second, "optimal": first, "short": second - first, "simple": ""})  # fmt: skip
    return rows


def judge_order(rows: list[Row]) -> list[Verdict]:
    """Judge Theorem 5.1 and Corollary 6.1."""
    plain, (other,) = pick(rows, scheme="none"), pick(rows, scheme="ppswor(0.005)")
    budgets = len(list(group(plain, "epsilon", "delta")))
    gain = (column(plain, "optimal") - column(plain, "simple")).max()
    short = column(plain, "short").max()
    return [
        judge_claim(
            "Theorem 5.1, Corollary 6.1 (published), no sampling: optimal orders any two keys best of all private "
            "channels",
            f"{len(plain)} pairs and budgets, {budgets} of these: within {short:.0e} of the best of all; simple is "
            f"lower by up to {gain:.3f}",
            short < 1e-8, "another channel orders keys better",
        ),
        judge_claim(
            "Theorem 5.1, Corollary 6.1 (published), ppswor(0.005), (0.5, 0.01): optimal orders any two keys best of "
            "all private channels below the scheme",
            f"frequencies 1 and 2: {other['optimal']:.6f}; a channel that never reports frequency 1: "
            f"{other['best']:.6f}",
            other["optimal"] >= other["best"], "only among channels that report as often",
        ),
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        "weighted_sampling_order",
        PAPER,
        "Theorem 5.1, Corollary 6.1",
        "the order of any two of 12 frequencies",
        2,
        order,
        judge_order,
    ),
)
