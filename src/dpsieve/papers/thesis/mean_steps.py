"""The steps of a private mean as in the experiments of the thesis (Section 5.7), for reproduction: mode 'thesis'.

- *centre*: the median of each coordinate, by the exponential mechanism on [-bound, bound] (Kaplan, Schnapp and Stemmer
  2022: for one quantile, recursive halving is one pick), each with 1/d of 1/16 of rho.
- *spread*: for real rows, the median of (x - y)^2 / 2 over pairs of rows (Algorithm 18 with k = 1) on [0, 2 bound^2],
  likewise, each with 1/d of 3/16 of rho, times (9/7)^3; for binary ones, q (1 - q) for the mean q with Gaussian noise,
  and no variance below d^(-2/5). The mean spread is added to all spreads.
- *radius*: the quantile 1 - k/n of the norms, for k = sqrt(n) + the rank error of Lemma 5.4, by one pick with 3/16 of
  rho on [0, sqrt(ln(d) ln(1/beta)) |spread^(p/(p+2))|_2].
- *noise*: Gaussian, with 9/16 of rho.

Privacy: picks are e^2/8-zCDP for one replaced row (`rank_picks`), and the rest is Gaussian; their rhos add up to rho.

What the thesis leaves open, and what is done here: beta is 0.1, and T of Lemma 5.4, which is about binary search, is
ln(2 bound), as in the code of its authors. Their code makes three copies of each row, moved by 0.1, for a third of the
budget each; that would be a ninth, and the text does not have it: here rows are taken once. A median of zeros and ones
is one of both; picked from [0, 1], it would be anything between. The bound M of Section 5.D for the radius of binary
rows is read as |spread^(-2/(p+2))|_2, the largest norm there is. The direct estimators of Section 5.C divide the
distance of a quantile from the centre by that of a standard Gaussian, which the thesis does for 0.841 only.
"""

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpsieve.accounting.gaussian import positive_delta
from dpsieve.accounting.renyi import zcdp_epsilon
from dpsieve.errors import InvalidValue
from dpsieve.numbers.grid_quantiles import as_share
from dpsieve.numbers.mean_plan import THESIS_FAILS, MeanPlan
from dpsieve.numbers.mean_steps import PlanSteps
from dpsieve.numbers.norm_noise import DELTA_OF_RHO
from dpsieve.numbers.ranks import normal_tail
from dpsieve.numbers.search import RANK_NOISE
from dpsieve.papers.thesis.rank_picks import RankPicks
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.types import Floats

_MEAN_OVER_MEDIAN = (1 - 2 / 9) ** -3  # of a chi-square variable with one degree of freedom


class ThesisSteps(PlanSteps):
    """Runs a plan of mode 'thesis' on rows; see the head of this module."""

    limited: ClassVar[bool] = False

    @staticmethod
    def promised(plan: MeanPlan, epsilon: float | None, delta: float | None) -> tuple[float, float]:
        """Return the (epsilon, delta) that all steps keep together, by zCDP."""
        if epsilon is not None and delta is not None:
            return epsilon, delta
        delta = positive_delta(DELTA_OF_RHO if delta is None else delta)
        found = zcdp_epsilon(plan.mu**2 / 2 * (1 + 2.0**-30), delta)  # more than all roundings
        if not math.isfinite(found):
            raise InvalidValue(f"rho has no epsilon up to 500 at delta={delta:g}. Pass a smaller rho.")
        return found, delta

    def run(self, known: Floats | None, spread: str | float) -> Floats:
        """Return the private mean."""
        plan = self.plan
        if plan.kind == "binary":
            centre = self._picks("centre").majorities(self.rows.ones(), plan.rows, self.source)
            mean = self._box_mean("spread") if known is None else centre
            spreads = np.sqrt(np.maximum(mean * (1 - mean) if known is None else known, plan.size**-0.4))
        else:
            centre = self._medians("centre", Fraction(1, 2))
            spreads = np.sqrt(known) if known is not None else self._estimated(centre, spread)
        self.centres, self.spreads = centre, spreads
        spreads = np.maximum(spreads, plan.bound * 2.0**-50)  # also where all columns are constant
        spreads = spreads + spreads.mean()
        weight = self._weight(spreads)
        widest = float(np.linalg.norm(weight))
        if plan.kind == "real":
            logs = max(1.0, math.log(plan.size)) * math.log(1 / THESIS_FAILS)
            widest = math.sqrt(logs) * float(np.linalg.norm(spreads ** (plan.p / (plan.p + 2))))
        share = as_share(1 - plan.thesis_clipped / plan.rows)
        norms = self.rows.norms(centre, weight)[:, None]
        radius = self._picks("radius").quantiles(norms, share, 0.0, widest, self.source)[0]
        return self._clipped_mean("noise", centre, weight, max(float(radius), widest * 2.0**-20))

    def _estimated(self, centre: Floats, spread: str | float) -> Floats:
        """Return a private standard deviation for each coordinate of real rows."""
        if spread not in ("auto", "pairs"):
            quantile = float(spread)
            return np.abs(self._medians("spread", as_share(quantile)) - centre) / normal_tail(1 - quantile)
        picks, widest = self._picks("spread"), 2 * self.plan.bound**2
        half = Fraction(1, 2)
        found = [picks.quantiles(one, half, 0.0, widest, self.source) for one in self.rows.pair_squares()]
        return np.asarray(np.sqrt(np.concatenate(found) * _MEAN_OVER_MEDIAN))

    def _medians(self, step: str, share: Fraction) -> Floats:
        picks, bound = self._picks(step), self.plan.bound
        found = [picks.quantiles(block, share, -bound, bound, self.source) for _, block in self.rows.blocks()]
        return np.concatenate(found)

    def _planned(self, step: str) -> Mechanism:
        return self._made(step) if self.plan.picks(step) else super()._planned(step)

    def _made(self, step: str) -> RankPicks:
        rho = Fraction(self._squares(step), 2 * int(RANK_NOISE) ** 2)
        return RankPicks.within(rho, self.plan.picks(step), step, delta=self.delta, unit=self.unit)

    def _picks(self, step: str) -> RankPicks:
        made = self._made(step)
        self.made.append(made)
        return made
