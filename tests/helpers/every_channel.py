"""One or more of every channel, for the checks that all of them pass; each is private with delta near 0.01."""

from dataclasses import dataclass

from helpers.schemes_in_use import SCHEMES

from dpsieve.channels import (
    gaussian,
    optimal,
    report_then_count,
    rows_of_units,
    sample_threshold,
    simple,
    stability,
    truncated_geometric,
)
from dpsieve.channels.floored import floored
from dpsieve.channels.ladder import LadderRows, make_table
from dpsieve.channels.unknown_keys import Optimal
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.sampling import ppswor


@dataclass(frozen=True, repr=False)
class OnLadder(Optimal):
    """The optimal channel with its table on a ladder, as for small rates, whatever the rate."""

    def _sampled(self, spread, scheme):
        made = make_table(self.epsilon, self.delta_, spread, scheme)
        return LadderRows(self.epsilon, self.delta_, spread, scheme, made)


CHANNELS = {
    "optimal": lambda: optimal(0.5, 0.01),
    "simple": lambda: simple(0.5, 0.01, unit="one user"),
    "stability": lambda: stability(0.5, 0.01),
    "truncated geometric": lambda: truncated_geometric(0.5, 0.01),
    "rows of units": lambda: rows_of_units(0.5, 0.01, 3),
    "gaussian": lambda: gaussian(1.0, 0.01, max_keys=2, max_rows=2),
    "report then count": lambda: report_then_count(1.0, 0.01, max_keys=3),
    "report then count, keys": lambda: report_then_count(0.5, 0.01, max_keys=2, max_rows=2, goal="keys"),
    "optimal, ppswor": lambda: optimal(0.5, 0.01, SCHEMES["ppswor"]),
    "optimal, step": lambda: optimal(1.0, 0.01, SCHEMES["step"]),
    "simple, priority": lambda: simple(0.5, 0.01, SCHEMES["priority"]),
    "sampled stability": lambda: sampled_stability(1.0, 0.01, SCHEMES["priority"], threshold="paper"),
    "sample threshold": lambda: sample_threshold(0.316, 4, epsilon=3.0),
    "optimal, floor": lambda: floored(optimal(0.5, 0.01), 4),
    "rows of units, floor": lambda: floored(rows_of_units(0.5, 0.01, 3), 3),
    "report then count, floor": lambda: floored(report_then_count(1.0, 0.01, max_keys=3), 3),
}
FLOORED = [name for name in CHANNELS if name.endswith("floor")]
FORMULAS = ("report then count", "report then count, keys", "sampled stability", "sample threshold")  # not certified
TABLES = {name: make for name, make in CHANNELS.items() if name not in (*FORMULAS, *FLOORED)}
TABLES["optimal, ladder"] = lambda: OnLadder(0.5, 0.01, ppswor(0.01))  # a kind of rows made by force
