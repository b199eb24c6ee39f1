"""Sums, means and quantiles of arrays, with settings that `ds.sum`, `ds.mean` and `ds.quantile` do not offer."""

from functools import partial

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.run import charge, open_ledger
from dpsieve.numbers.box import best_noise, sum_noise
from dpsieve.numbers.estimate import (
    LARGEST_BOUND,
    SMALLEST_BOUND,
    coordinate_names,
    describe_contribution,
    draw_sums,
    matrix,
)
from dpsieve.numbers.quantiles import INVENTED, choose_quantiles, draw_quantiles
from dpsieve.papers import thesis
from dpsieve.randomness.source import resolve

_WIDTHS = "Pass one width, one per coordinate, or a pair (low, high) per coordinate."
_COLUMN = "Pass one column of numbers, such as [1.5, 2.0, 7.25]."
_SPLITS = {"equal": "equal", "proportional": "like the widths"}

private_mean = partial(thesis.private_mean, mode="best")
preview_mean = partial(thesis.preview_mean, mode="best")


def private_sum(
    x, widths, *, neighbours, p=2.0, rho=None, epsilon=None, delta=None, noise="auto", shape="best", names=None,
    rows_per_unit=1, unit="one row", ledger=None, note="", source=None,
):  # fmt: skip
    """Return the private sum of all rows, coordinate by coordinate.

    A width w stands for the bounds [-w/2, w/2]; `names`, `noise` and `shape` are free here.
    """
    neighbours, book, source = validate.neighbours(neighbours), open_ledger(ledger, note), resolve(source)
    rows = matrix(x)
    lows, highs = box(widths, rows.values.shape[1], rows.single)
    labels = coordinate_names(names, rows)
    budget = {"rho": rho, "epsilon": epsilon, "delta": delta, "unit": unit}
    mechanism, grid = best_noise(
        lows, highs, neighbours, p=p, noise=noise, shape=shape, rows_per_unit=rows_per_unit, **budget
    )
    if book is not None:
        book.check(mechanism, note)
    mechanism, sums = sum_noise(mechanism, grid, rows.values.shape[0]), grid.sums(rows.values)
    split = _SPLITS.get(shape, f"best for moment {float(p):g} of the error")
    notes = {"reason": f"{mechanism.noise} noise, its split {split}", "single": rows.single}
    notes["contribution"] = describe_contribution(rows_per_unit)

    def draw(sums, source):
        return draw_sums(sums, mechanism, source, labels, **notes)

    with charge(mechanism, book, note, lambda: draw(np.zeros_like(sums), resolve(None))) as entry:
        return draw(sums, source).charged_as(entry)


def private_quantile(x, q, *, ledger=None, note="", source=None, **options):
    """Return quantiles of a column; the options are those of `choose_quantiles`, with `steps`."""
    values = column(x)
    mechanism, reason = choose_quantiles(q, **options)
    book, source, single = open_ledger(ledger, note), resolve(source), not np.ndim(q)

    def draw(values, source):
        return draw_quantiles(values, mechanism, source, reason=reason, single=single)

    with charge(mechanism, book, note, lambda: draw(INVENTED, resolve(None))) as entry:
        return draw(values, source).charged_as(entry)


def box(widths, size, single=False):
    """Return the lower and the upper bound of each coordinate."""
    given = validate.finite("widths", widths, hint=_WIDTHS)
    if single and given.shape == (2,):
        given = given[None]
    if given.shape == (size, 2):
        lows, highs = given.T.copy()
        if (lows > highs).any():
            raise InvalidValue("widths holds a pair whose low is above its high. Pass (low, high).")
    elif given.shape in ((), (1,), (size,)):
        if (given < 0).any():
            raise InvalidValue(f"widths holds a negative width. {_WIDTHS}")
        highs = np.broadcast_to(given / 2, (size,)).copy()
        lows = -highs
    else:
        raise InvalidValue(f"widths has another number of entries than x has coordinates, {size:,}. {_WIDTHS}")
    sizes = np.concatenate([np.abs(lows), np.abs(highs), highs - lows])
    if ((sizes > 0) & ((sizes < SMALLEST_BOUND) | (sizes > LARGEST_BOUND))).any():
        raise InvalidValue("widths holds bounds below 10^-60 or above 10^60. Rescale the data.")
    return lows, highs


def column(x):
    """Return a flat array of floats without NaN."""
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidType(f"x is a masked array, whose hidden numbers would count. {_COLUMN}")
    try:
        array = np.asarray(validate.listed(x))
    except ValueError:
        raise InvalidType(f"x must be one column of numbers. {_COLUMN}") from None
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidType(f"x must be one column of numbers. {_COLUMN}")
    floats = array.astype(np.float64, copy=False)
    if np.isnan(floats).any():
        raise InvalidValue("x holds NaN. Leave out or fill in what is missing, by a rule for each row alone.")
    return floats
