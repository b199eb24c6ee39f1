"""From tokens of a table on a ladder back to frequencies."""

import numpy as np

from dpsieve.privacy.ladder_kernel import LadderTable
from dpsieve.types import Floats, Ints


def first_past(table: LadderTable, places: Ints, tokens: Ints) -> Ints:
    """Return the first frequency whose place (c, or b) is at or past each token; `stop` if that is later."""
    parts, first, last = table.parts, table.first[:-1], table.first[1:] - 1
    ahead = table.starts - first
    stair = np.maximum(np.searchsorted(places[first] + ahead * parts, tokens) - 1, 0)
    near = tokens - ahead[stair] * parts
    again = np.maximum(0, -((places[last[stair]] - near) // parts))  # how often the last row is repeated until then
    row = np.where(again > 0, last[stair] + again, np.searchsorted(places, near))
    found: Ints = np.minimum(ahead[stair] + row, np.append(table.starts[1:], table.stop)[stair])
    return found


def likeliest_on_ladder(table: LadderTable, tokens: Ints) -> tuple[Ints, Floats]:
    """Return the frequency under which each token has its largest probability, and that; zero if no row has it.

    A token goes up the ladder until c passes it, and down from then on: so it is the last frequency before.
    """
    frequencies = first_past(table, table.c, tokens) - 1
    rung = frequencies + (-tokens // table.parts)  # above that of a new token
    possible = (rung >= 0) & (rung < len(table.masses) - table.birth)
    chance = np.where(possible, table.floats[table.birth + np.where(possible, rung, 0)], 0.0)
    return np.where(possible, frequencies, 1), chance
