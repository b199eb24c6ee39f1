"""The exact curves of one unit's coins, for many units and sums of others: written without the library's account."""

import math

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr


def _binomial(count, chance, not_chance):
    """Return the probabilities of 0, 1, ..., count reports, with their digits also for tiny chances."""
    k = np.arange(count + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(k > 0, k * np.log(chance), 0.0)
        logs = logs + np.where(count - k > 0, (count - k) * np.log(not_chance), 0.0)
    return np.exp(gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1) + logs)


def curve(groups, epsilons, noise=0.0):
    """Return the exact delta at each epsilon of groups of equal coins, (how many, (p, 1 - p), (q, 1 - q)), P against Q.

    How many of each group are reported is all that tells P and Q apart, so outcomes are the tuples of these numbers.
    With `noise`, Gaussians of this distance follow.
    """
    ours, theirs = np.ones(1), np.ones(1)
    for count, p, q in groups:
        ours, theirs = (np.outer(a, _binomial(count, *c)).ravel() for a, c in ((ours, p), (theirs, q)))
    if not noise:
        return np.maximum(0.0, ours - np.exp(np.asarray(epsilons))[:, None] * theirs).sum(axis=1)
    ours, theirs = ours[ours > 0], theirs[ours > 0]
    with np.errstate(divide="ignore"):
        left = np.maximum(np.asarray(epsilons)[:, None] - np.log(ours / theirs), -50.0)
    after = ndtr(noise / 2 - left / noise) - np.exp(left + log_ndtr(-noise / 2 - left / noise))
    return (ours * after).sum(axis=1)


def coins(table, sums):
    """Return p and 1 - p of some sums, with the digits of both, from the integers that are drawn from."""
    rows = [min(int(h), table.last) for h in sums]
    whole = [2**128 if h == table.last else (int(table.high[h]) << 64) + int(table.low[h]) for h in rows]
    return [(p / 2**128, (2**128 - p) / 2**128) for p in whole]


def searched_curves(selector, units, places, epsilons, noise=0.0):
    """Return the curves, in both directions, of units whose keys all have one sum, or of which some are new.

    `units` holds (number of keys, weight of each); a unit with some keys that nobody else holds and others in the
    middle of the table is what an adaptive rule could switch between.
    """
    found, table = [], selector.table
    for keys, weight in units:
        step = max(1, table.last // places)
        sums = [
            0,
            1,
            weight // 2,
            weight,
            2 * weight,
            *range(step, table.last, step),
            table.last - weight,
            table.last - 1,
        ]
        before, after = coins(table, sums), coins(table, [h + weight for h in sums])
        for q, p in zip(before, after, strict=True):
            for some in {keys, keys // 2} - {0}:
                new = coins(table, [0, weight])
                for way in (0, 1):
                    pair = (p, q) if way == 0 else (q, p)
                    other = (new[1], new[0]) if way == 0 else (new[0], new[1])
                    groups = [(some, *pair), *([(keys - some, *other)] if keys > some else [])]
                    found.append((way, curve(groups, epsilons, noise)))
    return found


def climbed_curves(selector, units, places, epsilons, noise):
    """Return curves as `searched_curves` does, of units whose keys have one sum; more near the largest ones."""
    found, table = [], selector.table

    def curve_at(keys, weight, h, way, epsilons):
        (q,), (p,) = coins(table, [h]), coins(table, [h + weight])
        return curve([(keys, *((p, q) if way == 0 else (q, p)))], epsilons, noise)

    for keys, weight in units:
        sums = [0, 1, weight // 2, weight, *np.linspace(0, table.last, places).astype(int).tolist()]
        for way in (0, 1):
            rough = [curve_at(keys, weight, h, way, epsilons[::4]) for h in sums]
            for best in {sums[i] for i in np.argmax(rough, axis=0)}:
                near = best + np.linspace(-0.5, 0.5, 5) * table.last / places
                found += [(way, curve_at(keys, weight, h, way, epsilons)) for h in {best, *near.astype(int)} if h >= 0]
    return found


def worst_after_a_look(curves, epsilon, epsilons, mu):
    """Return the largest delta at epsilon if a Gaussian look of distance mu decides which of the curves follows.

    For each value of the look's loss the worst curve is taken: what the worst rule for weights would do.
    """
    worst = 0.0
    for way in (0, 1):
        most = np.max([one for direction, one in curves if direction == way], axis=0)
        losses = epsilon - np.asarray(epsilons)
        density = np.exp(-((losses - mu**2 / 2) ** 2) / (2 * mu**2)) / (mu * math.sqrt(2 * math.pi))
        worst = max(worst, float(np.trapezoid(most * density, losses)))
    return worst


def curve_of(law):
    """Return the function that gives delta of a law of losses at each epsilon."""
    tops, bottoms = (np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (law.masses, law.masses * np.exp(-law.losses)))

    def delta(epsilons):
        first = np.clip(np.ceil(epsilons / law.grid - 1e-9) - law.low, 0, len(law.masses)).astype(int)
        return tops[first] - np.exp(np.minimum(epsilons, 700.0)) * bottoms[first] + law.leak

    return delta


def worst_before_laws(selector, sizes, places, epsilon, laws):
    """Return the largest exact delta at epsilon of units whose keys all have one sum, before what has one of two laws.

    `laws` are those for the directions with against without the unit, and back.
    """
    worst, table = 0.0, selector.table
    for keys in sizes:
        weight = selector.weight.of_keys(keys)[-1]
        sums = [0, 1, weight // 2, weight, *range(weight, table.last, max(1, table.last // places))]
        before, after = coins(table, sums), coins(table, [h + weight for h in sums])
        for pairs, law in ((zip(after, before, strict=True), laws[0]), (zip(before, after, strict=True), laws[1])):
            delta = curve_of(law)
            for p, q in pairs:
                ours, theirs = _binomial(keys, *p), _binomial(keys, *q)
                ours, theirs = ours[ours > 0], theirs[ours > 0]
                with np.errstate(divide="ignore"):
                    left = epsilon - np.log(ours / theirs)
                worst = max(worst, float(ours @ np.where(np.isinf(left), 1.0, delta(np.maximum(left, -700.0)))))
    return worst
