"""The prior that is hardest to estimate under, as a small concave program.

An estimator a, constant on token cells, has for row k the normalised squared error

    f_k(a) = s_k + sum_t p_k(t) (a_t / g_k - 1)^2,            s_k the probability of 'nothing'.

For weights w on the rows, the a that minimises sum_k w_k f_k(a) is known cell by cell,

    a_t = (sum_k w_k p_k(t) / g_k) / (sum_k w_k p_k(t) / g_k^2),

and its value h(w) is concave, with gradient f(a). By duality max_w h(w) = min_a max_k f_k(a). Newton steps climb
h(w) + mu sum_k log w_k on the simplex, for falling mu. On that path max_k f_k - h <= K mu, so the gap is seen at
every step. The last mu is not tiny: rows that do not bind keep a weight of about mu / slack, which makes a
good estimator for them too.
"""

from dataclasses import dataclass

import numpy as np

from dpsieve.estimation.checks import Floats

_GAP = 1e-3  # of the largest error; its root is then within 0.05 % of the best
_STEPS = 200


@dataclass(frozen=True, eq=False)
class Program:
    """Rows with their mass on each cell (rows x cells), their silent mass, and g; all g above zero."""

    mass: Floats
    silent: Floats
    g: Floats

    def best(self, weight: Floats) -> Floats:
        """Return the values that minimise the weighted error; every cell must have mass under some row."""
        return ((weight / self.g) @ self.mass) / ((weight / self.g**2) @ self.mass)

    def errors(self, values: Floats) -> Floats:
        """Return f_k for each row."""
        return np.asarray(self.silent + (self.mass * (values / self.g[:, None] - 1) ** 2).sum(axis=1))

    def hardest(self) -> Floats:
        """Return weights whose best estimator has a worst error within 0.1 % of the least possible."""
        weight = np.full(len(self.g), 1 / len(self.g))
        values = self.best(weight)
        errors = self.errors(values)
        mu = float(errors.max()) / len(weight)
        for _ in range(_STEPS):
            try:
                weight, decrement = self._climb(weight, values, errors, mu)
            except np.linalg.LinAlgError:  # what is left to gain is rounding
                break
            values = self.best(weight)
            errors = self.errors(values)
            if errors.max() - weight @ errors <= _GAP * errors.max():
                break
            if decrement < mu:
                mu *= 0.3
        return weight

    def _climb(self, weight: Floats, values: Floats, errors: Floats, mu: float) -> tuple[Floats, float]:
        """Take one damped Newton step; return the new weights and how much the step promised to gain.

        The Hessian of h is -2 V diag(1/c) V', with V_kt = p_k(t)/g_k (1 - a_t/g_k) and c_t = sum_k w_k p_k(t)/g_k^2.
        The system is solved for the relative change z = d / w, where the barrier adds mu times the identity.
        """
        curve = (weight / self.g**2) @ self.mass
        slope = (weight / self.g)[:, None] * self.mass * (1 - values / self.g[:, None]) / np.sqrt(curve)
        gain = weight * errors + mu
        system = 2 * slope @ slope.T + mu * np.eye(len(weight))
        plain, toward = np.linalg.solve(system, np.array([gain, weight]).T).T
        relative = plain - (weight @ plain) / (weight @ toward) * toward
        decrement = float(gain @ relative)
        step, before = min(1.0, 0.9 / max(float(-relative.min()), 1e-12)), self._height(weight, mu)
        while step > 1e-6:
            moved = weight * (1 + step * relative)
            moved /= moved.sum()
            if self._height(moved, mu) >= before + 0.1 * step * decrement:
                return moved, decrement
            step /= 2
        return weight, 0.0

    def _height(self, weight: Floats, mu: float) -> float:
        return float(weight @ self.errors(self.best(weight)) + mu * np.log(weight).sum())
