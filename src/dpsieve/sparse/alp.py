"""ALP: entries as unary numbers in columns of hashed places, with every bit flipped at random; and its parameters."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.kernel import GUARD, exp_floor
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import LazyUniform
from dpsieve.sparse.alp_estimates import MOST_TAKEN, Stretch, likeliest_levels, likelihood_steps, middles
from dpsieve.sparse.digests import KEY_WORDS, hash_words
from dpsieve.sparse.embedding import Embedding, Errors, Flag, Relation, VectorRelation, check_relation, in_threads
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import is_between, is_whole, positive_epsilon

FLIP_BITS = 24
"""A bit is flipped with a probability that is a multiple of 2^-24."""
MOST_COLUMNS, MOST_PLACES, MOST_CELLS = 1 << 16, 1 << 31, 1 << 38
_GRID_BITS, _EXACT = 20, 2.0**52
_CHUNK = 1 << 15  # words of bits flipped at a time: the random words stay in the processor's cache
_BAND = 2.0**-48
_LEAST_ALPHA, _LARGEST_ALPHA = 0.7, 12.0  # between which the least error is searched
_GAPS_TRIED = 12
_SPARSITY = "Pass about how many entries there are, such as sparsity=100_000; a public number, not a count of the data."
_MAKER = "Make it with alp(epsilon, sparsity, max_value, neighbours='l1')."


@register("alp")
@dataclass(frozen=True, repr=False)
class Alp(Embedding):
    """Random access to a sparse vector under pure privacy, by approximate Laplace projection.

    (Aumüller, Lebeda and Pagh, 'Representing Sparse Vectors with Differential Privacy, Low Error, Optimal Space, and
    Fast Access', 2022; chapter 2 of Lebeda's thesis, whose algorithms and sections are named here.)

    Public levels 0 = v_0 < v_1 < ... < v_m lie `gap` apart. An entry x, at most v_m, is rounded at random to a level
    next to it: from v_j up to v_(j+1) with probability (x - v_j) / (v_(j+1) - v_j). Column b = 1, ..., m has s
    `places`, all 0; an entry at level y sets its place h_b(i) in every column b <= y. Then each bit is flipped with
    probability p = flips / 2^24. With `signed`, m more columns do the same for -x.

    Guarantee: epsilon-differential privacy, for every choice of hash functions h, any number of entries and any values,
    where w is the least distance of levels and
    - under 'l1' (sum over i of |x_i - x'_i| <= 1): (1 - 2p) / (p w) <= epsilon;
    - under 'one_entry' (one whole value differs by 1) with whole levels: 1 + (1 - 2p) / (p w) <= e^epsilon.

    Proof: docs/background/vectors.md#proof-alp.
    With gap = alpha / epsilon this is Algorithms 2 to 5 (p = 1/(alpha + 2)); with gap 1 under 'one_entry' Algorithm 10.
    More entries than `sparsity` and values above v_m are allowed: entries collide more, values are clamped.

    Attributes:
        sparsity: the expected number of entries, which affects only the error.
        levels: m.
        places: s.
        flips: of 2^24.
        gap: the distance of levels; whole under 'one_entry'.
        signed: whether values may be below 0.
    """

    epsilon: Annotated[float, positive_epsilon]
    neighbours: VectorRelation
    sparsity: Annotated[int, is_whole(1, 10**10, _SPARSITY)]
    levels: Annotated[int, is_whole(1, MOST_COLUMNS, _MAKER)]
    places: Annotated[int, is_whole(1, MOST_PLACES, _MAKER)]
    flips: Annotated[int, is_whole(1, (1 << FLIP_BITS - 1) - 1, _MAKER)]
    gap: Annotated[float, is_between(2.0**-500, 2.0**500, _MAKER)]
    _: KW_ONLY
    signed: Flag = False
    unit: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns * self.places > MOST_CELLS:
            raise InvalidValue(f"levels and places make more than 2^38 bits. {_MAKER}", argument="places")
        if self.neighbours == "one_entry" and self.gap != int(self.gap):
            raise InvalidValue("gap is not whole, as neighbours='one_entry' needs it to be. Round it.", argument="gap")
        self.edges  # noqa: B018  # raises for levels that floats cannot distinguish

    @property
    def columns(self) -> int:
        """The number of columns."""
        return 2 * self.levels if self.signed else self.levels

    @property
    def words(self) -> int:
        return KEY_WORDS + -(-self.columns * self.places // 64)

    @property
    def flip(self) -> float:
        """The probability with which a bit is flipped, exactly."""
        return self.flips / float(1 << FLIP_BITS)

    @cached_property
    def edges(self) -> Floats:
        """The values v_0 = 0, ..., v_m of the levels. Their differences are exact."""
        return level_edges(self.gap, np.arange(1.0, self.levels + 1), self.neighbours)

    @property
    def max_value(self) -> float:
        """The largest value that can be stored, v_m."""
        return float(self.edges[-1])

    def __repr__(self) -> str:
        shape = f"{self.columns} columns of {self.places:,} places"
        return f"<alp, {shape}, gap={self.gap:g}, flips with probability {self.flip:.4g}, {self.guarantee}>"

    def certify(self) -> Certificate:
        closest = Fraction(float(np.diff(self.edges).min()))
        is_private = self.flips >= least_flips(self.epsilon, self.neighbours, closest)
        covers = f"a flip of each bit with probability {self.flips}/2^{FLIP_BITS}, levels at least {closest} apart"
        return formula(self.guarantee, 0.0 if is_private else 1.0, "kernel", covers)

    def draw(self, digests: Words, values: Any, source: Source, key: Words | None = None) -> Words:
        # The bits: bit c s + place of column c, the negative columns first.
        from dpsieve.sparse.loops import set_bits

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


_A = TypeVar("_A", bound=Alp)


def alp(
    epsilon: float,
    sparsity: int,
    max_value: float,
    *,
    neighbours: Relation,
    alpha: float | None = None,
    bits: float = 300.0,
    signed: bool = False,
    unit: str = "",
) -> Alp:
    """Return the ALP mechanism for about `sparsity` entries of at most `max_value`, at `bits` bits per entry.

    The arguments are those of `SparseVector.private`. If only a bound on the total of entries is known, `sparsity` is
    that total divided by the distance of levels, which is the number of ones in the fullest column. `alpha` is the
    distance of levels times epsilon, under 'one_entry' rounded to whole distances.

    >>> made = alp(1.0, 100_000, 60, neighbours="one_entry")
    >>> made.gap, made.levels, made.places, [round(error, 1) for error in made.expected_error()]
    (2.0, 30, 1000000, [2.4, 1.5])
    """
    relation, top, bits, alpha = check_shape(epsilon, sparsity, neighbours, max_value, bits, alpha)

    def make(gap: float) -> Alp:
        flips = least_flips(epsilon, relation, Fraction(gap))
        levels = max(math.ceil(top / gap), 1)
        check_levels(flips, levels)
        while level_edges(gap, np.arange(1.0, levels + 1), relation)[-1] < top:
            levels += 1
        places = max(int(bits * sparsity / (2 * levels if signed else levels)), 1)
        return Alp(epsilon, relation, sparsity, levels, places, flips, gap, signed=signed, unit=unit)

    if alpha is not None:
        return make(round_gap(alpha / epsilon, relation))
    most = bits / (4 if signed else 2)  # so that a column has two places per entry
    return search_gap(make, max(_LEAST_ALPHA / epsilon, top / most), _LARGEST_ALPHA / epsilon, top, relation)


def check_shape(
    epsilon: float, sparsity: int, neighbours: Relation, max_value: float, bits: float, alpha: float | None
) -> tuple[Relation, float, float, float | None]:
    """Check the arguments of `alp`; return the relation, the largest value, bits per entry and alpha."""
    validate.positive_epsilon(epsilon)
    validate.whole("sparsity", sparsity, low=1, high=10**10, hint=_SPARSITY)
    top = validate.between("max_value", max_value, 2.0**-100, 2.0**50, hint="Pass the largest value, such as 60.")
    bits = validate.between("bits", bits, 1.0, 10_000.0, hint="Pass how many bits to store per entry, such as 300.")
    if alpha is not None:
        alpha = validate.between("alpha", alpha, 1e-3, 1e6, hint="Pass a factor such as alpha=3.0.")
    return check_relation(neighbours), top, bits, alpha


def check_levels(flips: int, levels: int) -> None:
    """Raise for levels that are too close together, or too many."""
    if flips >= 1 << FLIP_BITS - 1:
        hint = "Pass a larger epsilon, or a larger alpha."
        raise InvalidValue(f"epsilon is too small for so close levels. {hint}", argument="epsilon")
    if levels > MOST_COLUMNS:
        hint = "Pass a larger alpha, or a smaller max_value."
        raise InvalidValue(f"alpha needs more than 2^16 levels. {hint}", argument="alpha")


def least_flips(epsilon: float, neighbours: Relation, closest: Fraction) -> int:
    """Return the least number of 2^24 at which flipping bits is epsilon-private, for levels this far apart.

    It is 2^24 / (2 + w b), rounded up, with b = epsilon under 'l1', and b <= e^epsilon - 1 under 'one_entry'.
    """
    signal = Fraction(epsilon) if neighbours == "l1" else Fraction(exp_floor(epsilon), 1 << GUARD) - 1
    return math.ceil((1 << FLIP_BITS) / (2 + closest * signal))


def level_grid(gap: float, neighbours: Relation) -> float:
    """Return the power of two that divides all levels."""
    return 1.0 if neighbours == "one_entry" else math.ldexp(1.0, math.frexp(gap)[1] - _GRID_BITS)


def level_edges(gap: float, ends: Floats, neighbours: Relation) -> Floats:
    """Return the values of levels, from 0 on; `ends` are those of the others in units of the gap, to be rounded."""
    grid = level_grid(gap, neighbours)
    with np.errstate(over="ignore"):
        steps = np.floor(ends * (gap / grid) + 0.5)  # rounded so that what lies n apart stays n apart
    if not steps[-1] < _EXACT:
        hint = "Pass fewer levels, or a smaller gap."
        raise InvalidValue(f"levels exceed the precision of floats. {hint}", argument="levels")
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


def search_gap(make: Callable[[float], _A], first: float, last: float, top: float, neighbours: Relation) -> _A:
    """Return the mechanism of the least mean error over a grid of gaps, where half of the entries read are present."""
    widest = max(top, 1.0) if neighbours == "one_entry" else top
    first = min(widest, first)
    last = min(widest, max(last, 4 * first))
    gaps = {round_gap(float(gap), neighbours) for gap in first * (last / first) ** np.linspace(0, 1, _GAPS_TRIED)}
    return min((make(gap) for gap in sorted(gaps)), key=lambda made: sum(made.expected_error()))


def round_gap(wanted: float, neighbours: Relation) -> float:
    """Return the nearest distance of levels that is whole, or has few binary digits."""
    grid = level_grid(wanted, neighbours)
    return max(math.floor(wanted / grid + 0.5), 1) * grid
