"""ALP: entries as unary numbers in columns of hashed places, with every bit flipped at random; and its parameters."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import GUARD, exp_floor
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import LazyUniform
from dpsieve.sparse.alp_estimates import MOST_TAKEN, Stretch, likeliest_levels, likelihood_steps, middles
from dpsieve.sparse.digests import KEY_WORDS, hash_words
from dpsieve.sparse.embedding import UNITS, Embedding, Errors, Relation, check_relation, in_threads
from dpsieve.types import Floats, Ints, Words

FLIP_BITS = 24
"""A bit is flipped with a probability that is a multiple of 2^-24."""
MOST_COLUMNS, MOST_PLACES, MOST_CELLS = 1 << 16, 1 << 31, 1 << 38
_GRID_BITS, _EXACT = 20, 2.0**52
_CHUNK = 1 << 15  # words of bits flipped at a time: the random words stay in the processor's cache
_BAND = 2.0**-48
SHAPES = ("even", "geometric")
_ALPHAS = {"even": (0.7, 12.0), "geometric": (2.5, 20.0)}  # Section 2.6: the best additive, multiplicative error
_GAPS_TRIED = 12


@register("alp")
@dataclass(frozen=True, repr=False)
class Alp(Embedding):
    """Random access to a sparse vector under pure privacy, by approximate Laplace projection.

    (Aumüller, Lebeda and Pagh, 'Representing Sparse Vectors with Differential Privacy, Low Error, Optimal Space, and
    Fast Access', 2022; chapter 2 of Lebeda's thesis, whose algorithms and sections are named here.)

    Public levels 0 = v_0 < v_1 < ... < v_m lie `gap`, gap * ratio, gap * ratio^2, ... apart. An entry x, at most v_m,
    is rounded at random to a level next to it: from v_j up to v_(j+1) with probability (x - v_j) / (v_(j+1) - v_j).
    Column b = 1, ..., m has s `places`, all 0; an entry at level y sets its place h_b(i) in every column b <= y. Then
    each bit is flipped with probability p = flips / 2^24. With `signed`, m more columns do the same for -x.

    Guarantee: epsilon-differential privacy, for every choice of hash functions h, any number of entries and any values,
    where w is the least distance of levels and
    - under 'l1' (sum over i of |x_i - x'_i| <= 1): (1 - 2p) / (p w) <= epsilon;
    - under 'one_entry' (one whole value differs by 1) with whole levels: 1 + (1 - 2p) / (p w) <= e^epsilon.

    Proof. Rounding an entry leaves only one of its bits to chance, so all cells are independent. A cell is one with
    probability q = p + (1 - 2p) (1 - Q (1 - r)), with r the probability that entry i sets it and Q the probability that
    no other entry does. If r changes by d, then q and 1 - q change by at most (1 - 2p) d, and both are at least p,
    so the probability of what is in the cell changes by a factor of at most 1 + (1 - 2p) d / p. If x_i changes by a,
    the d of its columns sum to at most a / w: each column's r is linear in x_i between two levels and constant beyond.
    Under 'one_entry' x_i and x_i + 1 lie between the same two levels: one factor, with d <= 1 / w. Under 'l1' change
    the entries one by one: the product of all factors is at most exp((1 - 2p) / p * sum of d) <= e^epsilon.
    Negative and positive parts change by |x_i - x'_i| together, and clamping to v_m only shrinks it.

    With gap = alpha / epsilon and ratio 1 this is Algorithms 2 to 5 (p = 1/(alpha + 2)); with gap 1 under 'one_entry'
    Algorithm 10; with whole gaps above 1 their exact loss is ln(1 + ...), so that p is smaller than in the thesis. A
    ratio above 1 is Section 2.6: an error in proportion to the value, for far fewer columns. Its levels are linear
    in between and begin at 0, so no logarithm of data is taken and small values stay distinct.

    More entries than `sparsity` and values above v_m are allowed: entries collide more, values are clamped.

    Attributes:
        epsilon: the guarantee.
        neighbours: 'l1' or 'one_entry'.
        sparsity: the expected number of entries, which affects only the error.
        levels: m.
        places: s.
        flips: of 2^24.
        gap: the first distance of levels; whole under 'one_entry'.
        ratio: of a distance to the one before; distances are rounded to whole numbers, or to 20 bits below the gap.
        signed: whether values may be below 0.
    """

    epsilon: float
    neighbours: Relation
    sparsity: int
    levels: int
    places: int
    flips: int
    gap: float
    ratio: float = 1.0
    _: KW_ONLY
    signed: bool = False
    unit: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.signed, bool):
            raise InvalidType("signed must be True or False. Pass signed=True for values below 0.")
        hint = "Make it with alp(epsilon, sparsity, max_value, neighbours='l1')."
        validate.store(
            self,
            epsilon=validate.positive_epsilon(self.epsilon),
            neighbours=check_relation(self.neighbours),
            sparsity=check_sparsity(self.sparsity),
            levels=validate.whole("levels", self.levels, low=1, high=MOST_COLUMNS, hint=hint),
            places=validate.whole("places", self.places, low=1, high=MOST_PLACES, hint=hint),
            flips=validate.whole("flips", self.flips, low=1, high=(1 << FLIP_BITS - 1) - 1, hint=hint),
            gap=validate.between("gap", self.gap, 2.0**-500, 2.0**500, hint=hint),
            ratio=validate.between("ratio", self.ratio, 1.0, 2.0**20, hint=hint),
        )
        if self.columns * self.places > MOST_CELLS:
            raise InvalidValue(f"levels and places make more than 2^38 bits. {hint}")
        if self.neighbours == "one_entry" and self.gap != int(self.gap):
            raise InvalidValue("gap is not whole, as neighbours='one_entry' needs it to be. Round it.")
        self.edges  # noqa: B018  # raises for levels that floats cannot distinguish
        validate.store(self, unit=self.guarantee.unit)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise when a total of 1, or 1 in one entry, is added or removed."""
        unit = UNITS[self.neighbours] if isinstance(self.unit, str) and not self.unit else self.unit
        return Guarantee(self.epsilon, unit=unit)

    @property
    def columns(self) -> int:
        """The number of columns."""
        return 2 * self.levels if self.signed else self.levels

    @property
    def words(self) -> int:
        """How many words it stores."""
        return KEY_WORDS + -(-self.columns * self.places // 64)

    @property
    def flip(self) -> float:
        """The probability with which a bit is flipped, exactly."""
        return self.flips / float(1 << FLIP_BITS)

    @cached_property
    def edges(self) -> Floats:
        """The values v_0 = 0, ..., v_m of the levels. Their differences are exact."""
        return level_edges(self.gap, self.ratio, self.levels, self.neighbours)

    @property
    def max_value(self) -> float:
        """The largest value that can be stored, v_m."""
        return float(self.edges[-1])

    def __repr__(self) -> str:
        shape = f"{self.columns} columns of {self.places:,} places"
        return f"<alp, {shape}, gap={self.gap:g}, flips with probability {self.flip:.4g}, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate: the formula of the guarantee in exact fractions, on the flips that are drawn."""
        closest = Fraction(float(np.diff(self.edges).min()))
        kept = self.flips >= least_flips(self.epsilon, self.neighbours, closest)
        covers = f"a flip of each bit with probability {self.flips}/2^{FLIP_BITS}, levels at least {closest} apart"
        return formula(self.guarantee, 0.0 if kept else 1.0, "kernel", covers)

    def draw(self, digests: Words, values: Any, source: Source, key: Words | None = None) -> Words:
        """Return the words of the hash key, then the bits: bit c s + place of column c, the negative columns first."""
        from dpsieve.sparse.bit_loops import set_bits

        cells = np.zeros(self.words, np.uint64)
        cells[:KEY_WORDS] = source.words(KEY_WORDS) if key is None else key
        bits, levels = cells[KEY_WORDS:], self._round_values(np.asarray(values), source)
        words = hash_words(cells[:KEY_WORDS], digests, 1)
        negative = self.levels if self.signed else 0

        def some(first: int, last: int) -> None:
            set_bits(levels, words, self.places, self.columns, negative, first, last, bits)

        in_threads(some, len(bits), 1 << 12)
        for start in range(0, len(bits), _CHUNK):
            bits[start : start + _CHUNK] ^= _flips(min(_CHUNK, len(bits) - start), self.flips, source)
        bits[-1] &= np.uint64(2**64 - 1 >> (-self.columns * self.places) % 64)
        return cells

    def get(self, cells: Words, digests: Words) -> Floats:
        """Return an estimate for each entry: the value of its likeliest level."""
        words, negative = hash_words(cells[:KEY_WORDS], digests, 1), self.levels if self.signed else 0
        return self.values_at(
            likeliest_levels(cells[KEY_WORDS:], words, self.places, self.columns, negative, self.flip)
        )

    def values_at(self, positions: Floats) -> Floats:
        """Return the values of positions among `all_edges`, interpolated between levels."""
        return np.interp(positions, np.arange(len(self.all_edges)), self.all_edges)

    @property
    def collision(self) -> float:
        """The probability that other entries take an entry's place in a column, if all have the largest value."""
        return -math.expm1(self.sparsity * math.log1p(-1 / self.places)) if self.places > 1 else 1.0

    def errors(self, value: float, steps: tuple[int, int] | None = None) -> Errors:
        """Return the distribution of estimate - value where all other entries have the largest value.

        It is exact (`alp_estimates`), except for the error of the estimated shares of taken places. Other `steps` than
        those of the likelihood, what a one adds and a zero subtracts, are for comparison.
        """
        value = validate.real("value", value, hint="Pass a value of an entry, or 0.0 for one that is not there.")
        top, sign = self.max_value, -1.0 if value < 0 and self.signed else 1.0
        size = min(max(sign * value, 0.0), top)
        j = min(int(np.searchsorted(self.edges, size, side="right")) - 1, self.levels - 1)
        share = (size - self.edges[j]) / (self.edges[j + 1] - self.edges[j])
        parts = [self._level_errors(level, sign, value, steps) for level in (j, j + 1)]
        return parts[1].mix(parts[0], share)

    def expected_error(self) -> tuple[float, float]:
        """Return the mean absolute error of present entries, and of absent ones.

        Present entries have values x from 1 (or 1/epsilon under 'l1') to v_m with density proportional to x^-1.5: most
        are small, as in most sparse data. All other entries have the largest value, which is the worst case.
        """
        least = 1.0 if self.neighbours == "one_entry" else min(1 / self.epsilon, self.max_value / 2)
        quantiles = np.arange(1, 20, 2) / 20
        values = (least**-0.5 * (1 - quantiles) + self.max_value**-0.5 * quantiles) ** -2
        values = np.floor(values) if self.neighbours == "one_entry" else values
        present = float(np.mean([self.errors(float(value)).mean for value in values]))
        return present, self.errors(0.0).mean

    def _level_errors(self, level: int, sign: float, value: float, steps: tuple[int, int] | None) -> Errors:
        if steps is None:
            ones, zeros = likelihood_steps(self.flip, np.array([min(self.collision, MOST_TAKEN)]))
            steps = int(ones[0]), -int(zeros[0])
        common = math.gcd(*steps)
        up, down = steps[0] // common, steps[1] // common
        other = self.flip + self.collision * (1 - 2 * self.flip)
        above = Stretch(self.levels - level, other, up, down)
        below = (Stretch(level, self.flip, down, up), Stretch(self.levels if self.signed else 0, other, up, down))
        moved, masses = middles(below, (above,))
        estimates = sign * self.values_at(moved + level + (self.levels if self.signed else 0))
        return Errors.of(estimates - value, masses)

    @cached_property
    def all_edges(self) -> Floats:
        """The values of all levels, the lowest first: with `signed`, from -v_m to v_m."""
        return np.concatenate([-self.edges[:0:-1], self.edges]) if self.signed else self.edges

    def _round_values(self, values: Any, source: Source) -> Ints:
        """Return a level for each value: up with exactly the probability of its position between two levels."""
        top = self.max_value
        if values.dtype.kind in "iu":
            top = min(int(top), 2**62)
        near = np.clip(values, -top if self.signed else 0, top).astype(np.float64)
        sizes, edges = np.abs(near), np.append(self.edges, np.inf)
        levels: Ints = np.searchsorted(self.edges, sizes, side="right") - 1
        words = source.words(len(sizes))
        uniform = words * 2.0**-64
        chance = (sizes - edges[levels]) / (edges[levels + 1] - edges[levels])
        raised = uniform < chance
        for i in np.flatnonzero(np.abs(uniform - chance) <= _BAND * (uniform + chance) + 2.0**-62):
            low, high, size = (float(number) for number in (edges[levels[i]], edges[levels[i] + 1], sizes[i]))
            raised[i] = high < math.inf and _below(low, size, high, int(words[i]), source)
        levels += raised
        np.negative(levels, where=near < 0, out=levels)
        return levels


def alp(
    epsilon: float,
    sparsity: int,
    max_value: float,
    *,
    neighbours: Relation,
    alpha: float | None = None,
    bits: float = 300.0,
    shape: str = "even",
    signed: bool = False,
    unit: str | None = None,
) -> Alp:
    """Return the ALP mechanism for about `sparsity` entries of at most `max_value`, at `bits` bits per entry.

    Args:
        epsilon: the budget.
        sparsity: the number of entries; if only a bound on their total is known, that total divided by the distance
            of levels, which is the number of ones in the fullest column.
        max_value: the largest value; larger ones are clamped.
        neighbours: 'l1' or 'one_entry'.
        alpha: the distance of levels times epsilon, under 'one_entry' rounded to whole distances. Default: the
            least expected error, by public numbers alone.
        bits: stored per entry. More bits mean fewer collisions. With fewer than two per column, a column has fewer
            places than twice the entries, which still works, with a larger error.
        shape: 'even', for an error that is the same for all values, or 'geometric', for one in proportion to them.
        signed: whether values may be below 0.
        unit: what is added or removed.

    >>> made = alp(1.0, 100_000, 60, neighbours="one_entry")
    >>> made.gap, made.levels, made.places, [round(error, 1) for error in made.expected_error()]
    (2.0, 30, 1000000, [2.4, 1.5])
    """
    epsilon, name = validate.positive_epsilon(epsilon), check_relation(neighbours)
    count = check_sparsity(sparsity)
    top = validate.between("max_value", max_value, 2.0**-100, 2.0**50, hint="Pass the largest value, such as 60.")
    bits = validate.between("bits", bits, 1.0, 10_000.0, hint="Pass how many bits to store per entry, such as 300.")
    if not isinstance(shape, str) or shape not in SHAPES:
        raise InvalidValue("shape is not known. Choose 'even' or 'geometric'.")
    if not isinstance(signed, bool):
        raise InvalidType("signed must be True or False. Pass signed=True for values below 0.")
    if alpha is not None:
        alpha = validate.between("alpha", alpha, 1e-3, 1e6, hint="Pass a factor such as alpha=3.0.")
        made = _make_with_gap(epsilon, name, count, top, _gap(alpha / epsilon, name), bits, shape, signed)
    else:
        made = _search_gap(epsilon, name, count, top, bits, shape, signed)
    return made if unit is None else replace(made, unit=unit)


def check_sparsity(value: object) -> int:
    """Return the expected number of entries."""
    hint = "Pass about how many entries there are, such as sparsity=100_000; a public number, not a count of the data."
    return validate.whole("sparsity", value, low=1, high=10**10, hint=hint)


def least_flips(epsilon: float, neighbours: Relation, closest: Fraction) -> int:
    """Return the least number of 2^24 at which flipping bits is epsilon-private, for levels this far apart.

    It is 2^24 / (2 + w b), rounded up, with b = epsilon under 'l1', and b <= e^epsilon - 1 under 'one_entry'.
    """
    signal = Fraction(epsilon) if neighbours == "l1" else Fraction(exp_floor(epsilon), 1 << GUARD) - 1
    return math.ceil((1 << FLIP_BITS) / (2 + closest * signal))


def level_grid(gap: float, neighbours: Relation) -> float:
    """Return the power of two that divides all levels."""
    return 1.0 if neighbours == "one_entry" else math.ldexp(1.0, math.frexp(gap)[1] - _GRID_BITS)


def level_edges(gap: float, ratio: float, levels: int, neighbours: Relation) -> Floats:
    """Return the values of levels, from 0 on."""
    grid = level_grid(gap, neighbours)
    with np.errstate(over="ignore"):
        ends = np.cumsum(np.cumprod(np.full(levels, ratio)) / ratio) if ratio > 1 else np.arange(1.0, levels + 1)
        steps = np.floor(ends * (gap / grid) + 0.5)  # rounded so that what lies n apart stays n apart
    if not steps[-1] < _EXACT:
        raise InvalidValue("gap, ratio and levels exceed the precision of floats. Pass fewer levels or less ratio.")
    return np.append(0.0, steps * grid)


def _flips(count: int, flips: int, source: Source) -> Words:
    """Return words whose bits are independently one with probability flips / 2^24.

    Each round takes a random bit and the next binary digit of the probability, from the last one that is 1 up: where
    the result so far is one with probability q, 'or' makes it (1 + q) / 2 and 'and' makes it q / 2.
    """
    out = np.zeros(count, np.uint64)
    for digit in range((flips & -flips).bit_length() - 1, FLIP_BITS):
        join = np.bitwise_or if flips >> digit & 1 else np.bitwise_and
        join(out, source.words(count), out=out)
    return out


def _below(low: float, size: float, high: float, word: int, source: Source) -> bool:
    """Return whether the uniform number that begins with a word is below (size - low) / (high - low)."""
    way = LazyUniform(source, word, 64)
    return way.below(lambda: (ball(size) - ball(low)) / (ball(high) - ball(low)))


@lru_cache(maxsize=256)
def _search_gap(
    epsilon: float, neighbours: Relation, sparsity: int, top: float, bits: float, shape: str, signed: bool
) -> Alp:
    """Return the mechanism of the least expected error over a grid of distances between levels."""
    most = bits / (4 if signed else 2)  # so that a column has two places per entry
    widest = max(top, 1.0) if neighbours == "one_entry" else top
    least, largest = _ALPHAS[shape]
    first = min(widest, max(least / epsilon, top / most if shape == "even" else 0.0))
    last = min(widest, max(largest / epsilon, 4 * first))
    tried = first * (last / first) ** np.linspace(0, 1, _GAPS_TRIED)
    gaps = sorted({_gap(float(gap), neighbours) for gap in tried})
    made = [_make_with_gap(epsilon, neighbours, sparsity, top, gap, bits, shape, signed) for gap in gaps]
    return min(made, key=_score)


def _score(made: Alp) -> float:
    """Return the mean error, where half of the requested entries are present."""
    return sum(made.expected_error()) / 2


def _make_with_gap(
    epsilon: float, neighbours: Relation, sparsity: int, top: float, gap: float, bits: float, shape: str, signed: bool
) -> Alp:
    flips = least_flips(epsilon, neighbours, Fraction(gap))
    if flips >= 1 << FLIP_BITS - 1:
        raise InvalidValue("epsilon is too small for so close levels. Pass a larger epsilon, or a larger alpha.")
    p = flips / 2**FLIP_BITS
    ratio = (4 * p * (1 - p)) ** -0.25 if shape == "geometric" else 1.0
    levels = math.ceil(math.log1p(top * (ratio - 1) / gap) / math.log(ratio) if ratio > 1 else top / gap)
    if levels > MOST_COLUMNS:
        raise InvalidValue("alpha needs more than 2^16 levels. Pass a larger alpha, or a smaller max_value.")
    levels = max(levels, 1)
    while (edges := level_edges(gap, ratio, levels, neighbours))[-1] < top:
        levels += 1
    flips = least_flips(epsilon, neighbours, Fraction(float(np.diff(edges).min())))
    places = max(int(bits * sparsity / (2 * levels if signed else levels)), 1)
    return Alp(epsilon, neighbours, sparsity, levels, places, flips, gap, ratio, signed=signed)


def _gap(wanted: float, neighbours: Relation) -> float:
    """Return the nearest distance of levels that is whole, or has few binary digits."""
    grid = level_grid(wanted, neighbours)
    return max(math.floor(wanted / grid + 0.5), 1) * grid
