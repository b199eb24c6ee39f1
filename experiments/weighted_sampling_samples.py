"""Figures 3 and 4 on private weighted sampling: how many keys come out of a sample, by frequency and by sampling rate.

    .venv/bin/python experiments/weighted_sampling_samples.py

Sampling is ppswor. Figure 3 has delta 2^-20 and the epsilons and rates of the authors' public code, with 1e-6 added, as
the papers do not name them. Figure 4 has epsilon 0.1, delta 0.001 and data floor((n/i)^alpha), i = 1, ..., n.
"""

import altair as alt
import numpy as np
from weighted_sampling import (
    DELTA,
    EPSILONS,
    Axis,
    Figure,
    Row,
    Verdict,
    between,
    channels,
    column,
    grid,
    lines,
    publish,
    said,
    short,
    spaced,
    table,
    threshold,
    zipf,
)

import dpsieve as ds
from dpsieve.channels.optimal_channels import Optimal
from dpsieve.types import Floats

RATES = (0.1, 0.01, 1e-4, 1e-6)  # of figure 3
DATA = {0.5: 10**6, 1.0: 10**5, 2.0: 10**3}  # n for each alpha
CLAIMED = {0.5: 230, 1.0: 97, 2.0: 37}  # percent more keys than sampled SbH, in both versions
BUDGET = 0.1, 0.001  # of figure 4
NEAR = 0.99  # of the sampling probability
LOSS = 0.001  # what stairs may cost `optimal` at small rates
BASELINES = ("sbh", "sbh_fair")
SHOWN = ["not_private", "both", *BASELINES]


def figure_3(points: int = 48, epsilons: tuple[float, ...] = EPSILONS, rates: tuple[float, ...] = RATES) -> Figure:
    """Reporting probabilities by frequency, for each epsilon and rate."""
    rows: list[Row] = []
    panels, early, apart, least = [], [], [], []
    for epsilon in epsilons:
        last = 2 * threshold(epsilon, DELTA)
        for rate in rates:
            scheme, i = ds.ppswor(rate), spaced(last, points)
            made = channels(epsilon, DELTA, scheme)
            found = {"not_private": scheme.inclusion(i)}
            found |= {name: channel.reporting_probability(i) for name, channel in made.items()}
            part = table({"epsilon": epsilon, "rate": rate}, i, found)
            rows += part
            apart.append(np.abs(found["optimal"] / found["simple"] - 1).max())
            least.append(min((found["optimal"] / found[name]).min() for name in BASELINES))
            every = np.arange(1, int(last) + 1)
            sampled = scheme.inclusion(every)
            reached = [_reaches(channel.reporting_probability(every), sampled) for channel in made.values()]
            early.append((reached[2] / reached[0], reached[3] / reached[0]))
            panels.append(
                lines(
                    [{**row, "both": row["optimal"]} for row in part],
                    Axis("frequency", "true frequency", 1, last, log=True),
                    Axis("reported", "probability of being reported", 1e-7, 1, log=True),
                    SHOWN,
                    (190, 150),
                    f"epsilon {epsilon:g}, rate {short(rate)}",
                )
            )
    times = [between([pair[k] for pair in early], ".2f") for k in (0, 1)]
    verdicts = [
        Verdict(
            "figure 3",
            "PWS reports more often than sampled SbH, and reaches the sampling probability at lower frequencies",
            f"99 % of the sampling probability is reached at frequencies {times[0]} times lower, {times[1]} times with "
            f"the fair threshold; PWS / SbH is at least {min(least):.4f}; optimal and simple differ by "
            f"{max(apart):.0e}, relatively",
            said(min(least) > 1 - LOSS and min(min(pair) for pair in early) >= 1),
        )
    ]
    return Figure("figure_3", rows, {"figure_3": grid(panels, len(rates))}, verdicts)


def _reaches(reported: Floats, sampled: Floats) -> int:
    """Return the first frequency that is reported nearly as often as it is sampled."""
    return int(np.argmax(reported >= NEAR * sampled)) + 1 if (reported >= NEAR * sampled).any() else len(reported) + 1


def shares(alpha: float, rate: float) -> Row:
    """Return the expected share of keys that come out, for a Zipf distribution and a rate."""
    frequencies, counts = zipf(DATA[alpha], alpha)
    scheme = ds.ppswor(rate)
    made = channels(*BUDGET, scheme)
    optimal = made["optimal"]
    assert isinstance(optimal, Optimal) and optimal.loss <= LOSS
    found = {"not_private": scheme.inclusion(frequencies)}
    found |= {name: channel.reporting_probability(frequencies) for name, channel in made.items()}
    return {
        "alpha": alpha,
        "rate": rate,
        **{name: float(counts @ share) / DATA[alpha] for name, share in found.items()},
    }


def gain(row: Row, baseline: str) -> float:
    """Return how many percent more keys PWS reports than a baseline."""
    return 100 * (row["simple"] / row[baseline] - 1)


def figure_4(steps: int = 4) -> Figure:
    """Share of keys that come out, by sampling rate; so many rates for each power of ten."""
    rates = np.logspace(-6, 0, 6 * steps + 1).tolist()
    rows = {alpha: [shares(alpha, rate) for rate in rates] for alpha in DATA}
    verdicts, delta = [], BUDGET[1]
    for alpha, part in rows.items():
        large = [row for row in part if row["rate"] >= 0.0999]
        above = [row for row in part if row["rate"] >= 0.999 * delta]
        paper, fair = (np.array([gain(row, name) for row in large]) for name in BASELINES)
        lows = [min(gain(row, "sbh") for row in some) for some in (above, part)]
        verdicts.append(
            Verdict(
                f"figure 4, alpha {alpha:g}, {DATA[alpha]:,} keys",
                f"PWS reports (at least) {CLAIMED[alpha]} % more keys than sampled SbH",
                f"at rates from 0.1 on {between(paper, '.1f')} %, {between(fair, '.1f')} % with the fair threshold; "
                f"the least is {lows[0]:.1f} % down to a rate of delta, and {lows[1]:.1f} % down to 1e-6",
                f"as the gain at rates from 0.1 on: {said(np.abs(paper - CLAIMED[alpha]).max() < 2)}; as 'at least': "
                f"{said(lows[1] > CLAIMED[alpha] - 0.5)}",
            )
        )
    every = [row for part in rows.values() for row in part]
    close = [row["simple"] / row["not_private"] for row in every if abs(row["rate"] / delta - 1) < 1e-6]
    apart = np.abs(column(every, "optimal") / column(every, "simple") - 1).max()
    verdicts.append(
        Verdict(
            "figure 4",
            "reporting approaches that of the sample that is not private as the rate approaches delta",
            f"at a rate of delta PWS reports {100 * min(close):.3f} % of the sampled keys; at any rate optimal reports "
            f"up to {100 * apart:.3f} % fewer than simple, for its stairs",
            said(min(close) > 0.999 and apart < LOSS),
        )
    )
    return Figure("figure_4", every, {"figure_4": _panels(rows)}, verdicts)


def _panels(rows: dict[float, list[Row]]) -> alt.ConcatChart:
    """Return the shares of keys, and below them the gains."""
    rate, size = Axis("rate", "sampling rate", 1e-6, 1, log=True), (250, 170)
    share = Axis("share", "share of keys reported", 1e-6, 1, log=True)
    more = Axis("gain", "keys more than SbH, percent", 0.1, 10_000, log=True)
    tops = [
        lines(
            [{**row, "both": row["optimal"]} for row in part],
            rate,
            share,
            SHOWN,
            size,
            f"Zipf({alpha:g}), {DATA[alpha]:,} keys",
        )
        for alpha, part in rows.items()
    ]
    below = [
        lines(
            [{"rate": row["rate"], **{name: gain(row, name) for name in BASELINES}} for row in part],
            rate,
            more,
            BASELINES,
            size,
            f"Zipf({alpha:g}), gain",
        )
        for alpha, part in rows.items()
    ]
    return grid([*tops, *below], 3)


def main() -> None:
    """Write both figures and print the verdicts."""
    publish("samples", [figure_3(), figure_4()])


if __name__ == "__main__":
    main()
