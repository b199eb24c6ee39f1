"""Quantiles from clients: answers with honest intervals, both protocols, hostile reports, odd data."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.statistical import FALSE_ALARM
from scipy import stats

import dpsieve as ds
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidValue
from dpsieve.federated import Distribution, Quantiles, TrieHeavyHitters
from dpsieve.federated.client import Grid, client_answer
from dpsieve.federated.server.bands import Tree, largest_share, smallest_share
from dpsieve.federated.server.simulated_clients import cell_edges, find_cells, read_digits, write_digits
from dpsieve.publication.files import _seal
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import resolve
from dpsieve.testing import insecure_source

LEVEL = {"coin": 0.2, "threshold": 20}  # private at (2, 1e-6), and no search for a plan
PHIS = np.linspace(0.0, 1.0, 101)


def server(low=0.0, high=1.0, **other):
    return Quantiles(low, high, epsilon=2.0, delta=1e-6, **(LEVEL | other))


def data(name, count=60_000):
    rng = np.random.default_rng(5)
    return {
        "uniform": rng.random(count),
        "skewed": rng.beta(0.3, 6.0, count),
        "constant": np.full(count, 0.3),
        "tenths": rng.integers(0, 11, count) / 10,
        "two ends": rng.integers(0, 2, count).astype(float),
    }[name]


def changed(folder, change, *, sealed=True):
    """Change a saved release, digests and all, as no accident would."""
    place = folder / "release.parquet"
    record, table = change(json.loads((folder / "release.json").read_text()), pq.read_table(place))
    pq.write_table(table, place)
    if sealed:
        record["table_sha256"] = hashlib.sha256(place.read_bytes()).hexdigest()
        record["seal"] = _seal(record)
    (folder / "release.json").write_text(json.dumps(record))


NAMES = ("uniform", "skewed", "constant", "tenths", "two ends")


class TestShares:
    @pytest.mark.parametrize(("inside", "outside"), [(0, 30), (5, 25), (30, 0), (500, 500), (0, 0)])
    @pytest.mark.parametrize("miss", [0.05, 1e-6])
    def test_bounds_are_wider_than_exact_ones_but_not_by_much(self, inside, outside, miss):
        """Clopper and Pearson's are exact for a sample with replacement, which spreads more than one without."""
        low, high = float(smallest_share(inside, outside, miss)), float(largest_share(inside, outside, miss))
        exact_low = stats.beta.ppf(miss, inside, outside + 1) if inside else 0.0
        exact_high = stats.beta.isf(miss, inside + 1, outside) if outside else 1.0
        assert low <= exact_low + 1e-12 and high >= exact_high - 1e-12
        if inside + outside:
            share = inside / (inside + outside)
            assert high - share <= 2.0 * (exact_high - share) + 0.01 and share - low <= 2.0 * (share - exact_low) + 0.01

    def test_they_hold_for_samples_without_replacement(self):
        clients, miss = 400, 0.02
        for true in (3, 60, 200):
            for sampled in (20, 100, 390):
                seen = np.arange(max(0, sampled + true - clients), min(sampled, true) + 1)
                law = stats.hypergeom(clients, true, sampled).pmf(seen)
                assert law[largest_share(seen, sampled - seen, miss) < true / clients].sum() <= miss
                assert law[smallest_share(seen, sampled - seen, miss) > true / clients].sum() <= miss


class TestGrid:
    def test_digits_of_a_value(self):
        grid = Grid(0.0, 1.0, branching=4, depth=2)
        assert grid.string(1 / 3) == b"\x01\x01" and grid.string(0) == b"\0\0" and grid.string(1) == b"\3\3"
        assert grid.string(5) == b"\3\3" and Grid(0, 1, outside="silent").string(5) is None
        for other in (None, "0.5", True, float("nan"), [0.5], b"", 10**400):
            assert grid.string(other) is None
        assert read_digits(grid, write_digits(grid, [0.0, 1 / 3, 1.0])).tolist() == [0, 5, 15]
        assert Grid.from_json(json.loads(json.dumps(grid.to_json()))) == grid

    def test_every_value_is_between_the_edges_of_its_cell(self):
        rng = np.random.default_rng(1)
        for low, high, branching, depth in (
            (0, 1, 10, 2),
            (-3.7, 1e6, 3, 12),
            (1e9, 1e9 + 1, 16, 4),
            (0, 1e-300, 2, 20),
        ):
            grid = Grid(low, high, branching, depth)
            ends = cell_edges(grid, np.arange(min(grid.cells, 1000) + 1))
            values = np.concatenate([rng.uniform(low, high, 1000), ends, np.nextafter(ends, low), [low - 1, np.inf]])
            found, inside = find_cells(grid, values), np.clip(values, low, high)
            assert (cell_edges(grid, found) <= inside).all()
            assert ((inside < cell_edges(grid, found + 1)) | (found == grid.cells - 1)).all()
            assert found.tolist() == [grid.cell(value) for value in values.tolist()], "a client finds the same cell"
            assert write_digits(grid, values).to_pylist() == [grid.string(value) for value in values]
        assert Grid(0, 1, 10, 2).cell(0.29) == 29 and Grid(0, 1, outside="silent").cell(1.5) is None

    def test_bad_parameters(self):
        bad = {"low": (1, float("nan"), "x"), "high": (0, np.inf), "branching": (1, 300, 2.0), "depth": (0, 41)}
        for name, values in (bad | {"outside": ("x", None)}).items():
            for value in values:
                with pytest.raises(DpsieveError, match=name):
                    Grid(**({"low": 0, "high": 1} | {name: value}))
        for other in ({"branching": 256, "depth": 9}, {"low": -1e308, "high": 1e308}, {"low": 1.0, "high": 1 + 1e-15}):
            with pytest.raises(DpsieveError):
                Grid(**({"low": 0, "high": 1} | other))


class TestDistribution:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("protocol", ["rounds", "cohorts"])
    def test_everything_is_within_its_interval(self, name, protocol):
        values = np.sort(data(name))
        answers = server(protocol=protocol, **LEVEL).run(values)
        # Intervals that hold together with probability 0.95 are made to do so nearly surely, for this test.
        sure = replace(answers, notes=replace(answers.notes, confidence=1 - FALSE_ALARM))
        for answer, width in ((answers, 0.13), (sure, 0.2)):
            found, true = answer.quantile(PHIS), np.quantile(values, PHIS, method="inverted_cdf")
            assert (np.diff(found.value) >= 0).all() and (np.diff(found.low) >= 0).all()
            assert (found.low <= found.value).all() and (found.value <= found.high).all()
            at = np.linspace(0, 1, 777)
            share, below = answer.cdf(at), np.searchsorted(values, at) / len(values)
            below[-1] = 1.0
            assert (np.diff(share.value) >= 0).all() and (share.low <= share.value).all()
            assert (share.value <= share.high).all()
            if answer is sure:
                assert ((found.low <= true) & (true <= found.high)).all()
                assert ((share.low <= below + 1e-12) & (below <= share.high + 1e-12)).all()
            wide = share.high - share.low
            assert np.median(wide) < width
            for first, last in ((0.25, 0.5), (0.1, 0.9), (0.5, 0.51), (0.0, 0.3), (0.3, 1.0), (0.3, 0.3), (-5.0, 7.0)):
                low, high = answer.range(first, last)[1:]
                inside = ((values >= first) & ((values < last) | (last >= 1.0) & (values <= last))).mean()
                if answer is sure:
                    assert low <= inside + 1e-12 and inside <= high + 1e-12
        total = sure.total
        assert total.low <= len(values) <= total.high < 1.4 * len(values)

    def test_intervals_hold_as_often_as_they_say(self):
        """One run misses if any edge or quantile does."""
        rng, runs, missed = np.random.default_rng(2), 100, 0
        at, values = np.linspace(0, 1, 65), np.sort(rng.beta(2.0, 5.0, 3000))
        below = np.searchsorted(values, at) / len(values)
        below[-1] = 1.0
        for _ in range(runs):
            share = server(coin=0.3, threshold=13, branching=4, depth=3, protocol="cohorts").run(values).cdf(at)
            missed += bool(((below < share.low - 1e-12) | (below > share.high + 1e-12)).any())
        assert missed <= stats.binom.isf(FALSE_ALARM, runs, 0.05)

    def test_errors_shrink_with_the_sample(self):
        widths = []
        for count in (5_000, 50_000, 500_000):
            share = server().run(np.random.default_rng(1).random(count)).cdf(0.5)
            widths.append(share.high - share.low)
        assert widths[0] > 2 * widths[1] > 4 * widths[2]

    def test_ranges_add_up_the_fewest_parts(self):
        grid = Grid(0.0, 1.0, branching=4, depth=2)
        fine = np.arange(1, 17)
        tree = Tree(grid, [(np.arange(4), fine.reshape(4, 4).sum(1)), (np.arange(16), fine)], threshold=1)
        for first in range(17):
            for last in range(first, 17):
                assert tree._cover(first, last) == (fine[first:last].sum(), 0)
        hidden = Tree(grid, [(np.arange(4), np.full(4, 100)), (np.arange(8, 16), np.full(8, 25))], threshold=9)
        assert hidden._cover(0, 8) == (200, 0) and hidden._cover(1, 9) == (100 + 25, 3)

    def test_values_outside(self):
        values = np.concatenate([np.full(20_000, -7.0), np.full(20_000, 0.5), np.full(20_000, np.inf)])
        clipped, silent = server().run(values), server(outside="silent").run(values)
        assert clipped.cdf(0.25).value == pytest.approx(1 / 3, abs=0.05)
        assert silent.cdf(0.25).high < 0.05 < 0.95 < silent.cdf(0.75).low
        assert silent.total.high < 30_000 < clipped.total.low

    def test_any_interval_and_any_column(self):
        values = np.random.default_rng(1).normal(50.0, 10.0, 40_000)
        for column in (values, values.tolist(), pa.array(values), pa.chunked_array([values]), values.astype("f4")):
            low, high = server(-100.0, 200.0, branching=8, depth=3).run(column).quantile(0.5)[1:]
            assert low < 50 < high < low + 10
        with_holes = pa.array([*values[:20_000].tolist(), None, None], from_pandas=True)
        assert server(-100.0, 200.0).run(with_holes).total.high < 25_000

    @pytest.mark.parametrize("values", [[], [0.5], [np.nan, np.nan], np.empty(0), pa.array([], pa.float64())])
    @pytest.mark.parametrize("protocol", ["rounds", "cohorts", "one_round"])
    def test_nobody_and_one_client(self, values, protocol):
        answers = server(protocol=protocol, branching=4, depth=2).run(values)
        assert answers.cdf([0.2, 0.8]).low.tolist() == [0, 0] and answers.cdf(0.5).high == 1
        assert answers.quantile(0.5)[1:] == (0.0, 1.0) and answers.total.low == 0
        assert (np.diff(answers.quantile(PHIS).value) >= 0).all()

    def test_clients_one_by_one(self):
        values = np.random.default_rng(1).random(1500)
        for protocol in ("rounds", "cohorts"):
            made = Quantiles(0.0, 1.0, epsilon=8.0, delta=0.5, depth=2, protocol=protocol, coin=0.6, threshold=4)
            levels, grid = 1 + uniform_integers(len(values), 2, resolve(None)), Grid.from_json(made.grid.to_json())
            for question in made.questions():
                pairs = zip(values, levels, strict=True)
                reports = [
                    client_answer(question, grid.string(value), level=level, budget=None) for value, level in pairs
                ]
                made.take([*reports, (b"\0", True), (b"\7", False), "junk"])
            answers = made.release(confidence=1 - FALSE_ALARM)
            assert (made.ignored.malformed, made.ignored.total) == (6, 6)
            low, high = answers.quantile(0.25)[1:]
            assert low <= np.quantile(values, 0.25) <= high < 0.6

    @pytest.mark.parametrize("protocol", ["rounds", "cohorts", "one_round"])
    @pytest.mark.parametrize("count", [0, 20_000])
    def test_saved_and_read_again(self, tmp_path, protocol, count):
        source = insecure_source(1)
        made = server(-1.0, 2.0, protocol=protocol, depth=3, outside="silent").run(
            np.linspace(0, 1, count), source=source
        )
        folder = made.save(tmp_path / "ages")
        assert sorted(path.name for path in folder.iterdir()) == ["release.json", "release.parquet"]
        again = Distribution.load(folder)
        assert (again.grid, again.guarantee, again.certificate) == (made.grid, made.guarantee, made.certificate)
        assert again.unsafe_to_publish and again.confidence == made.confidence and again.total == made.total
        for ask in (lambda answers: answers.quantile(PHIS), lambda answers: answers.cdf(PHIS)):
            assert np.array_equal(ask(again), ask(made))
        assert again.range(0.2, 0.7) == made.range(0.2, 0.7)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda folder: (folder / "release.parquet").unlink(),
            lambda folder: (folder / "release.json").unlink(),
            lambda folder: pq.write_table(
                pq.read_table(folder / "release.parquet").slice(1), folder / "release.parquet"
            ),
            lambda folder: changed(folder, lambda record, table: (record | {"keys": 0}, table), sealed=False),
            lambda folder: changed(folder, lambda record, table: (record | {"notes": {}}, table)),
            lambda folder: changed(folder, lambda record, table: (record | {"kind": "other"}, table)),
            lambda folder: changed(folder, lambda record, table: (record, table.slice(1, 9))),
            lambda folder: changed(folder, lambda record, table: (record, table.drop_columns(["token"]))),
            lambda folder: changed(folder, lambda record, table: (record, pa.concat_tables([table, table]))),
        ],
    )
    def test_damage_is_noticed(self, tmp_path, damage):
        folder = server(depth=2).run(np.linspace(0, 1, 20_000)).save(tmp_path / "ages")
        damage(folder)
        with pytest.raises(CorruptRelease):
            Distribution.load(folder)

    def test_each_kind_is_read_by_its_own(self, tmp_path):
        answers, strings = server(depth=2).run([]), TrieHeavyHitters(2.0, 1e-6, max_length=2, **LEVEL).run([])
        with pytest.raises(InvalidValue, match=r"Use Distribution\.load"):
            ds.Release.load(answers.save(tmp_path / "answers"))
        with pytest.raises(InvalidValue, match=r"Use TrieRelease\.load"):
            Distribution.load(strings.save(tmp_path / "strings"))
        with pytest.raises(InvalidValue, match="exists already"):
            answers.save(tmp_path / "strings")

    def test_marks_and_words(self):
        answers = server().run(np.full(1000, 0.5), source=insecure_source(1))
        assert answers.unsafe_to_publish and "UNSAFE" in repr(answers)
        assert answers.certificate.worst <= answers.guarantee.delta == 1e-6

    def test_bad_questions(self):
        answers = server().run([0.5] * 1000)
        for phi in (-0.1, 1.1, np.nan, "x", None, [0.5, 2.0]):
            with pytest.raises(DpsieveError, match="phi"):
                answers.quantile(phi)
        for bad in (np.inf, "x", None):
            with pytest.raises(DpsieveError):
                answers.cdf(bad)
            with pytest.raises(DpsieveError):
                answers.range(0.0, bad)
        with pytest.raises(InvalidValue, match="above"):
            answers.range(0.5, 0.2)
        for values in (["a"], 5, [[0.5]], pa.array(["x"]), [True]):
            with pytest.raises(DpsieveError, match="values"):
                server().run(values)
        with pytest.raises(InvalidValue, match="one_round"):
            server(protocol="one_round", depth=6)
