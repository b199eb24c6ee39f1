"""Report first, then count: what is drawn, what is read from it, what is refused, and when it is chosen."""

import contextlib
import dataclasses
import time

import numpy as np
import pyarrow as pa
import pytest
from helpers.shown_keys import coin, noise
from helpers.statistical import assert_counts, binomial_band

import dpsieve as ds
from dpsieve.channels import gaussian, report_then_count
from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.noise.report_tables import ReportingTable, worst_delta
from dpsieve.privacy.mechanism import from_json

COUNTS = report_then_count(1.0, 1e-4, 3)
KEYS = report_then_count(1.0, 1e-4, 3, goal="keys")
SEVERAL_ROWS = report_then_count(1.0, 1e-3, 2, max_rows=4)
ALL = pytest.mark.parametrize("channel", [COUNTS, KEYS, SEVERAL_ROWS], ids=["counts", "keys", "several rows"])


def tokens_of(channel, x):
    """All tokens of a key of frequency x that shows, and their probabilities."""
    centre = max(x, channel.first * channel.max_rows)
    near = np.arange(-int(12 * channel.sigma), int(12 * channel.sigma) + 1)
    return centre + near + channel.rows.offset, noise(channel, near)


class TestWhatIsDrawn:
    @ALL
    def test_keys_show_as_often_as_their_coin_and_tokens_are_rounded_gaussians(self, channel):
        """Below, at and above `first`; a chi-square test fails by chance once in 10^9."""
        start = channel.first * channel.max_rows
        for x in (start // 2, start - 1, start, start + 3, channel.rows.last + 10):
            drawn = channel.draw(np.full(20_000, x)).tokens
            values, chance = tokens_of(channel, x)
            shown = float(coin(channel, x))
            low, high = binomial_band(20_000, shown)
            assert low <= (drawn > 0).sum() <= high
            seen = np.bincount(drawn[drawn > 0] - values[0], minlength=len(values))
            if seen.sum() > 1000:
                assert_counts(seen.astype(float), chance * seen.sum())

    @ALL
    def test_coins_are_stairs_of_max_rows(self, channel):
        """Frequencies 1 to r have one coin, r + 1 to 2r the next: no unit climbs more than one step."""
        rows = channel.max_rows
        shown = channel.reporting_probability(np.arange(1, 6 * rows + 1)).reshape(6, rows)
        assert (shown == shown[:, :1]).all() and (np.diff(shown[:, 0]) > 0).all()
        assert shown[0, 0] <= channel.delta_ / channel.max_keys

    @pytest.mark.parametrize(("keys", "rows"), [(3, 1), (8, 1), (3, 4)])
    def test_a_unit_with_keys_of_its_own_through_the_whole_path(self, keys, rows):
        """Any of its keys shows with probability delta at most, here as often as the first coin says."""
        delta, units = 0.02, 12_000
        count = units * keys * rows
        user, rest = np.divmod(np.arange(count), keys * rows)
        names = [f"{u} {k}" for u, k in zip(user.tolist(), (rest // rows).tolist(), strict=True)]
        release = ds.release(
            pa.table({"user": user, "key": names}), key="key", privacy_unit="user", epsilon=1.0, delta=delta,
            max_keys_per_unit=keys, max_rows_per_key=rows, method="report_then_count", report_coverage=False,
        )  # fmt: skip
        exposed = len({name.split()[0] for name in release.table["key"].to_pylist()})
        chance = 1 - (1 - float(coin(release.mechanism, rows))) ** keys
        low, high = binomial_band(units, chance)
        assert low <= exposed <= high and 0.1 * delta < chance < delta

    def test_a_token_never_says_nothing(self):
        """Noise that is far below the count is cut at one, not made 'nothing'."""
        channel = report_then_count(0.2, 0.02, 2)
        assert channel.rows.start + channel.rows.offset > 13 * channel.sigma
        assert (channel.draw(np.full(50_000, channel.rows.last)).tokens >= 1).all()


class TestWhatIsRead:
    @ALL
    @pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
    def test_intervals_cover_every_frequency(self, channel, level):
        """Exactly, given a report, below `first` too, and none is longer than the noise asks for."""
        start = channel.first * channel.max_rows
        for x in [
            1,
            2,
            start // 2,
            start - 1,
            start,
            start + 1,
            start + 7,
            channel.rows.last,
            channel.rows.last + 1000,
        ]:
            values, chance = tokens_of(channel, x)
            low, high = channel.interval(values, level)
            inside = chance[(low <= x) & (x <= high)].sum()
            assert inside >= level - 1e-9
            if x > start + 10 * channel.sigma:
                assert inside - level < 2 * noise(channel, np.array([0]))[0]

    @ALL
    def test_tokens_are_unbiased_from_first_on(self, channel):
        """And below it they are those of `first`."""
        start = channel.first * channel.max_rows
        for x in (start, start + 1, start + 50):
            values, chance = tokens_of(channel, x)
            assert (values - channel.rows.offset) @ chance == pytest.approx(x, rel=1e-9)
        drawn = channel.draw(np.full(40_000, channel.rows.last + 500)).tokens - channel.rows.offset
        error = drawn.mean() - channel.rows.last - 500
        assert abs(error) < 6.2 * channel.sigma / 200  # one in 10^9
        far = channel.rows.last + 10**6
        assert channel.read([far + channel.rows.offset]).count.tolist() == [far]

    def test_a_release_is_read_back(self):
        channel = from_json(COUNTS.to_json())
        assert channel == COUNTS and channel.certify().worst <= COUNTS.delta_


class TestWhatIsRefused:
    @pytest.mark.parametrize("channel", [COUNTS, KEYS], ids=["counts", "keys"])
    @pytest.mark.parametrize(
        ("field", "times"),
        [
            ("power", 0.7), ("sigma", 0.9), ("max_keys", 2), ("max_rows", 2), ("epsilon", 0.9),
            ("delta_", 0.5),
        ],
    )  # fmt: skip
    def test_forged_fields(self, channel, field, times):
        old = getattr(channel, field)
        with pytest.raises(InvalidValue):
            dataclasses.replace(channel, **{field: type(old)(old * times)})

    def test_another_first_has_another_table(self):
        """Where tokens count is a choice: the table follows it, and the one for later counts does not fit."""
        earlier = dataclasses.replace(KEYS, first=KEYS.first // 2)
        with pytest.raises(InvalidValue, match="no table"):  # the noise leaves no room for coins
            earlier.certify()
        earlier = dataclasses.replace(COUNTS, first=COUNTS.first - 5)
        earlier.certify()
        with pytest.raises(NotCertified):
            worst_delta(COUNTS.rows.table, earlier.coins)

    @pytest.mark.parametrize(
        "fields",
        [
            {"max_keys": 10_000, "sigma": 1e9, "power": 20.0},
            {"sigma": 1e9, "first": 100_000, "power": 1e6, "epsilon": 0.001, "max_keys": 2},
            {"sigma": 1e9, "first": 100_000, "max_keys": 1000},
        ],
    )
    def test_forged_numbers_are_settled_soon(self, fields):
        """Refused, or another private channel: no endless table, and no huge array to read a token."""
        begin = time.process_time()
        with contextlib.suppress(DpsieveError):
            made = from_json({**COUNTS.to_json(), **fields})
            assert made.certify().worst <= made.delta_
            made.read([made.rows.last + made.rows.offset])
        assert time.process_time() - begin < 30

    @staticmethod
    def forged(channel, row, change):
        """The table of a channel with one row changed: `change` takes a probability on the grid and returns another."""
        table = channel.rows.table
        high, low = table.high.copy(), table.low.copy()
        number = change((int(high[row]) << 64) + int(low[row]))
        high[row], low[row] = number >> 64, number & ((1 << 64) - 1)
        return ReportingTable(high, low)

    @pytest.mark.parametrize("channel", [COUNTS, KEYS], ids=["counts", "keys"])
    def test_forged_rows(self, channel):
        """The rows as they are pass; one that is a little higher or lower, or falls, or is above zero, does not."""
        table, coins = channel.rows.table, channel.coins
        assert 0.98 * channel.delta_ < worst_delta(table, coins) <= channel.delta_
        first, last = channel.first, table.last
        for row in {2, last // 3, first - 2, min(first + 3, last - 2)}:
            for part in (20, -20):
                forged = self.forged(channel, row, lambda mass, part=part: mass + min(mass, (1 << 128) - mass) // part)
                with pytest.raises(NotCertified, match="differ by more"):
                    worst_delta(forged, coins)
        with pytest.raises(NotCertified, match="no unit holds"):
            worst_delta(self.forged(channel, 0, lambda mass: mass + 1), coins)
        falls = self.forged(channel, 5, lambda _: (int(table.high[4]) << 64) + int(table.low[4]) - 1)
        with pytest.raises(NotCertified, match="less often"):
            worst_delta(falls, coins)

    @pytest.mark.parametrize("channel", [COUNTS, KEYS], ids=["counts", "keys"])
    def test_a_table_that_ends_too_soon(self, channel):
        """The row before the last must be nearly one."""
        table = channel.rows.table
        for fewer in (1, 2, 5):
            short = ReportingTable(table.high[:-fewer], table.low[:-fewer])
            with pytest.raises(NotCertified, match="differ by more"):
                worst_delta(short, channel.coins)

    def test_bad_arguments_say_what_to_do(self):
        with pytest.raises(InvalidValue, match="optimal"):
            report_then_count(1.0, 1e-6, 1)
        with pytest.raises(InvalidValue, match="'counts', 'keys'"):
            report_then_count(1.0, 1e-6, 2, goal="sums")


def planned(epsilon, delta, keys, rows=1, **more):
    numbers = {"epsilon": epsilon, "delta": delta, "max_keys_per_unit": keys, "max_rows_per_key": rows}
    request = ReleaseRequest(key="word", privacy_unit="user", **numbers)
    return choose_mechanism(request, request.contribution, **more)


class TestWhenItIsChosen:
    @pytest.mark.parametrize(
        ("budget", "keys", "name"),
        [
            ((1.0, 1e-8), 1, "optimal"), ((1.0, 1e-8), 2, "optimal"),
            ((1.0, 1e-8), 3, "report_then_count"), ((0.5, 1e-6), 10, "report_then_count"),
            ((3.0, 1e-5), 50, "report_then_count"), ((0.01, 1e-12), 1000, "gaussian"),
        ],
    )  # fmt: skip
    def test_auto_takes_the_best(self, budget, keys, name):
        assert planned(*budget, keys).name == name

    def test_keys_only_has_the_goal_of_keys(self):
        counts, keys = (planned(1.0, 1e-6, 10, keys_only=only).mechanism for only in (False, True))
        assert keys.first == keys.rows.table.last and counts.first < 0.8 * keys.first

    def test_preview_and_release_agree(self):
        numbers = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-4, "max_keys_per_unit": 5}
        numbers["report_coverage"] = False
        table = pa.table({"user": np.arange(3000) % 600, "key": [f"k{i // 600}" for i in range(3000)]})
        seen, made = ds.preview(**numbers), ds.release(table, **numbers)
        assert seen.mechanism == made.mechanism.name == "report_then_count"
        assert seen.guarantee == made.guarantee and len(made) == 5
        shown = made.mechanism.reporting_probability([seen.half - 1, seen.half, seen.surely - 1, seen.surely])
        assert shown[0] < 0.5 <= shown[1] and shown[2] < 0.95 <= shown[3]

    @pytest.mark.parametrize(
        ("epsilon", "delta", "keys", "rows", "goal"),
        [
            (0.02, 1e-6, 2, 1, "keys"), (10.0, 1e-12, 1000, 1, "keys"), (10.0, 1e-12, 1000, 1, "counts"),
            (10.0, 1e-3, 2, 100, "counts"), (0.5, 1e-10, 300, 3, "keys"), (10.0, 1e-6, 10_000, 1, "counts"),
            (5.0, 1e-12, 50, 1, "counts"), (1.0, 1e-16, 10, 1, "counts"), (50.0, 1e-20, 2, 1, "keys"),
            (50.0, 1e-20, 2, 1, "counts"), (50.0, 1e-8, 10, 1, "keys"),
        ],
    )  # fmt: skip
    def test_any_budget(self, epsilon, delta, keys, rows, goal):
        """What is made keeps its promise; the last row is one only where that step is allowed."""
        channel = report_then_count(epsilon, delta, keys, rows, goal=goal)
        assert channel.certify().worst <= delta
        before = np.array([channel.rows.table.last - 1]) * rows
        assert keys * channel.rows.withheld(before)[0] <= delta
        half = channel.rows.table.crossing(0.5) * rows
        assert half > 0 and channel.sigma > 0 and channel.first <= channel.rows.table.last

    @pytest.mark.parametrize(
        ("delta", "keys", "known", "threshold"),
        [
            (1e-8, 2, 37.1, 42.3), (1e-8, 3, 45.4, 52.2), (1e-8, 10, 70.7, 97.7),
            (1e-8, 100, 143.5, 325.5), (1e-5, 10, 42.7, 57.1),
        ],
    )  # fmt: skip
    def test_the_frequency_of_an_even_chance(self, delta, keys, known, threshold):
        """At epsilon 1: three to twelve per cent lower than with coins of one Renyi order, by exact composition."""
        most = 0.975 * known
        for goal in ("keys", "counts"):
            channel = report_then_count(1.0, delta, keys, goal=goal)
            assert channel.rows.table.crossing(0.5) < most < 0.9 * threshold
            least = gaussian(1.0, delta, keys)
            assert channel.sigma < 1.21 * least.sigma
