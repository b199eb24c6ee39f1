"""From tokens of a table on a ladder back to frequencies."""

import numpy as np

from dpsieve.channels.ladder.table import Made
from dpsieve.types import Floats, Ints


def first_past(made: Made, places: Ints, tokens: Ints) -> Ints:
    """Return the first frequency whose place (c, or b) is at or past each token; `made.stop` if that is later."""
    parts, first, last = made.table.parts, made.first[:-1], made.first[1:] - 1
    ahead = made.starts - first
    stair = np.maximum(np.searchsorted(places[first] + ahead * parts, tokens) - 1, 0)
    near = tokens - ahead[stair] * parts
    again = np.maximum(0, -((places[last[stair]] - near) // parts))  # how often the last row is repeated until then
    row = np.where(again > 0, last[stair] + again, np.searchsorted(places, near))
    found: Ints = np.minimum(ahead[stair] + row, np.append(made.starts[1:], made.stop)[stair])
    return found


def likeliest_on_ladder(made: Made, tokens: Ints) -> tuple[Ints, Floats]:
    """Return the frequency under which each token has its largest probability, and that; zero if no row has it.

    A token goes up the ladder until c passes it, and down from then on: so it is the last frequency before.
    """
    table, frequencies = made.table, first_past(made, made.table.c, tokens) - 1
    rung = frequencies + (-tokens // table.parts)  # above that of a new token
    possible = (rung >= 0) & (rung < len(table.masses) - table.birth)
    chance = np.where(possible, table.floats[table.birth + np.where(possible, rung, 0)], 0.0)
    return np.where(possible, frequencies, 1), chance
