"""From tokens of a table on a ladder back to frequencies: the likeliest one."""

import numpy as np

from dpsieve.channels.ladder.table import Made
from dpsieve.types import Floats, Ints


def likeliest_on_ladder(made: Made, tokens: Ints) -> tuple[Ints, Floats]:
    """Return the frequency under which each token has its largest probability, and that; zero if no row has it.

    A token goes up the ladder until c passes it, and down from then on: so it is the last frequency before.
    """
    table, parts, starts = made.table, made.table.parts, made.starts
    first, last = made.first[:-1], made.first[1:] - 1
    ahead = starts - first
    stair = np.maximum(np.searchsorted(table.c[first] + ahead * parts, tokens) - 1, 0)
    near = tokens - ahead[stair] * parts
    again = np.maximum(0, -((table.c[last[stair]] - near) // parts))  # how often the last row is repeated until then
    row = np.where(again > 0, last[stair] + again, np.searchsorted(table.c, near))
    passed = np.minimum(ahead[stair] + row, np.append(starts[1:], made.stop)[stair])
    rung = passed - 1 + (-tokens // parts)  # above that of a new token
    possible = (rung >= 0) & (rung < len(table.masses) - table.birth)
    chance = np.where(possible, table.floats[table.birth + np.where(possible, rung, 0)], 0.0)
    return np.where(possible, passed - 1, 1), chance
