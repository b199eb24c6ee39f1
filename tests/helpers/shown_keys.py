"""What `report_then_count` shows of one key: its coins as exact fractions, its tokens from the normal distribution."""

import math
from fractions import Fraction

import numpy as np
from scipy.special import ndtr


def coin(channel, x):
    """The exact probability with which a key of frequency x shows."""
    table, i = channel.rows.table, -(-x // channel.max_rows)
    return Fraction((int(table.high[i]) << 64) + int(table.low[i]), 1 << 128) if i < table.last else Fraction(1)


def noise(channel, values):
    """The probabilities of a Gaussian that is rounded to whole numbers; tails keep their digits."""
    near = np.abs(values)
    return ndtr((0.5 - near) / channel.sigma) - ndtr((-0.5 - near) / channel.sigma)


def outcomes(channel, x, y):
    """What is seen of a key of frequency x, and of one of frequency y: 'nothing' first, then tokens."""
    start = channel.first * channel.max_rows
    centres = [max(x, start), max(y, start)]
    far = math.ceil(12 * channel.sigma)
    tokens = np.arange(min(centres) - far, max(centres) + far + 1) if x >= start or y > start else np.array([start])
    laws = []
    for frequency, centre in zip((x, y), centres, strict=True):
        shown = noise(channel, tokens - centre) if len(tokens) > 1 else np.ones(1)
        laws.append(np.append(float(1 - coin(channel, frequency)), float(coin(channel, frequency)) * shown))
    return laws
