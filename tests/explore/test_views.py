"""What the views show: the numbers of the library, the words of its requests, and code that gives the same."""

import re
import shlex
import threading
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from helpers.command import run

import dpsieve as ds
from dpsieve.channels.channel import frequency_at
from dpsieve.errors import InvalidValue
from dpsieve.explore.inputs import read_inputs
from dpsieve.explore.planning import EPSILONS, Ahead, Law, Reach, least_epsilon, reach, zipf
from dpsieve.explore.saved import Files
from dpsieve.explore.views import VIEWS
from dpsieve.jobs.number_request import HistogramRequest
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.publication.publication import UNSAFE
from dpsieve.testing import insecure_source


def answer(view, files=None, **texts):
    held = files or Files()
    return VIEWS[view].answer(held, read_inputs(VIEWS[view].inputs(held), texts))


def plotted(found, title):
    return {line["name"]: dict(zip(line["x"], line["y"], strict=True)) for line in found.plots[title]["lines"]}


class TestPlan:
    def test_probabilities_are_those_of_the_channels(self):
        found = answer("plan", max_keys_per_unit="1", against="gaussian")
        for name, channel in (
            ("optimal", ds.channels.optimal(1.0, 1e-8)),
            ("gaussian", ds.channels.gaussian(1.0, 1e-8)),
        ):
            points = plotted(found, 0)[name]
            assert len(points) > 30
            assert list(points.values()) == channel.reporting_probability(list(points)).tolist()

    def test_errors_are_those_of_simulated_releases(self):
        """The root mean square of 20,000 errors: a standard error is below 1 %, and ten of them never happen."""
        channel = ds.channels.optimal(1.0, 1e-8)
        points = plotted(answer("plan", max_keys_per_unit="1", against="none"), 1)["optimal"]
        for frequency in (next(n for n in points if 18 <= n <= 20), next(n for n in points if n > 100)):
            drawn = channel.draw([frequency] * 20_000, source=insecure_source(7)).tokens
            counts = np.zeros(len(drawn))
            counts[drawn > 0] = channel.likeliest(drawn[drawn > 0])
            simulated = np.sqrt(((counts - frequency) ** 2).mean()) / frequency
            assert points[frequency] == pytest.approx(simulated, rel=0.1)

    def test_lines_and_tiles_are_those_of_the_preview(self):
        found = answer("plan", epsilon="0.5", max_keys_per_unit="5", against="stability")
        asked = {"privacy_unit": "user_id", "key": "query", "epsilon": 0.5, "delta": 1e-8, "max_keys_per_unit": 5}
        seen = {method: ds.preview(**asked, method=method) for method in ("auto", "stability")}
        rows = {row[0]: row[1:] for row in found.facts}
        for place, preview in enumerate(seen.values()):
            assert dict(preview.lines()).items() <= {name: cells[place] for name, cells in rows.items()}.items()
        assert found.tiles[0][1:] == (f"{seen['auto'].half} units", f"stability: {seen['stability'].half} units")
        assert found.tiles[1][1] == f"± {seen['auto'].width // 2}"

    def test_expected_keys_are_the_sum_of_probabilities(self):
        frequencies = np.minimum(1_000 * 2 * np.arange(1, 51) ** -1.0 / (np.arange(1, 51) ** -1.0).sum(), 1_000).round()
        law = zipf(1_000, 50, 3, 1.0, 2)
        assert sorted(np.repeat(law.frequencies, law.keys)) == sorted(frequencies)
        channel = reach(1.0, 1e-8, 2, "optimal", "user_id", "query").channel
        shown = answer("plan", units="1000", distinct_keys="50", keys_of_a_unit="3", max_keys_per_unit="2",
                       method="optimal", against="none").tiles[2]  # fmt: skip
        assert shown == ("expected keys", f"{channel.reporting_probability(frequencies.astype(int)).sum():,.0f}", "")

    def test_an_uploaded_histogram_replaces_the_law(self):
        files = Files()
        name = files.add_histogram("count\n" + "1000\n" * 40 + "1\n" * 60)
        found = answer("plan", files, histogram=name, against="none")
        assert found.tiles[2][1] == "40" and "of 100 keys" in found.headline
        (points,) = plotted(found, 2).values()
        assert points[1] > 0.999 and points[100] < 1e-6

    def test_a_method_that_cannot_do_it_is_told_beside_the_other(self):
        found = answer("plan", max_keys_per_unit="1", against="report_then_count")
        assert len(found.plots[0]["lines"]) == 1 and "report then count: max keys 1" in found.notes[0]

    def test_totals_are_as_exact_as_in_a_release(self):
        """The interval of a sum does not depend on what was drawn; that of a mean, by the noise of its count alone."""
        asked = {"privacy_unit": "user_id", "key": "query", "epsilon": 1.0, "delta": 1e-8, "max_keys_per_unit": 1}
        columns = {"sums": {"price": (0, 200)}, "means": {"rating": (1, 5)}}
        table = pa.table(
            {"user_id": range(1_000), "query": ["tea"] * 1_000, "price": [3] * 1_000, "rating": [3] * 1_000}
        )
        made = ds.release(table, **asked, **columns, source=insecure_source(1)).table.to_pylist()[0]
        found = answer("plan", max_keys_per_unit="1", sums="price:0:200", means="rating:1:5")
        of_sum, of_mean = found.tiles[3:]
        assert of_sum[1] == f"± {(made['price_high'] - made['price_low']) / 2:,.0f}"
        assert float(of_mean[1].split()[1]) == pytest.approx((made["rating_high"] - made["rating_low"]) / 2, rel=0.05)
        preview = ds.preview(**asked, **columns)
        assert dict(preview.lines()).items() <= {row[0]: row[1] for row in found.facts}.items()
        assert found.tiles[0][1:] == (f"{preview.half} units", f"counts alone: {ds.preview(**asked).half} units")
        points = plotted(found, 3)
        assert set(points) == {"sum of price", "mean of rating"}
        assert points["mean of rating"][1] == 0.5, "a mean of one unit is not stated"

    def test_errors_of_counts_with_totals_are_those_of_simulated_releases(self):
        """As above, for 20,000 keys."""
        found = reach(1.0, 1e-8, 1, "auto", "user_id", "query", 1, (("price", (0, 200)),))
        for frequency in (found.half, 200):
            outcome = found.channel.draw([frequency] * 20_000, sums=np.zeros((1, 20_000)), source=insecure_source(7))
            tokens = outcome.tokens
            counts = np.where(tokens > 0, found.channel.read(np.maximum(tokens, 1)).count, 0)
            simulated = ((counts - frequency) ** 2).mean()
            assert found.squared_errors(np.array([frequency]))[0] == pytest.approx(simulated, rel=0.1)

    def test_totals_in_two_steps_are_planned_as_they_are_drawn(self):
        found = reach(1.0, 1e-8, 10, "auto", "user_id", "query", 5, (("price", (0, 200)),))
        selector = found.channel.selector
        assert abs(found.half - selector.users_needed(10)) <= 1
        assert found.reported(np.array([4, 10_000])).tolist() == [0.0, 1.0]
        deviation = found.channel.scale(10)
        assert found.half_width == int(1.96 * np.hypot(deviation, 12**-0.5))
        assert found.squared_errors(np.array([10_000]))[0] == pytest.approx(deviation**2 + 1 / 12, rel=0.01)

    def test_a_floor_and_a_rest_are_those_of_the_preview(self):
        asked = {"privacy_unit": "user_id", "key": "query", "epsilon": 1.0, "delta": 1e-8, "max_keys_per_unit": 1}
        for texts, arguments in (
            ({"min_units": "50"}, {"min_units": 50}),
            ({"rest": "yes"}, {"rest": True}),
            ({"min_units": "50", "rest": "yes"}, {"min_units": 50, "rest": True}),
        ):
            preview, found = ds.preview(**asked, **arguments), answer("plan", max_keys_per_unit="1", **texts)
            assert found.tiles[0][1] == f"{preview.half} units" and found.tiles[1][1] == f"± {preview.width // 2}"
            assert dict(preview.lines()).items() <= {row[0]: row[1] for row in found.facts}.items()
            shares = plotted(found, 0)["optimal"]
            least = arguments.get("min_units", 1)
            assert not any(share for units, share in shares.items() if units < least)

    def test_wrong_totals_name_their_input(self):
        for text in ("price", "price:0", "price:auto", "price:0:1,price:0:2", "price:a:b", ","):
            with pytest.raises(InvalidValue, match="sums is not a list of different columns with two bounds each"):
                answer("plan", sums=text)
        for text in ("price:2:1", ":0:1", "price:nan:1", "price:0:1e400", "query:0:1"):
            with pytest.raises((InvalidValue, TypeError)) as raised:
                answer("plan", sums=text)
            assert (raised.value.argument or str(raised.value)).startswith("sums"), text

    def test_the_stops_of_sliders_are_made_ahead(self):
        found = answer("plan", max_keys_per_unit="1", delta="1e-07")
        reach.cache_clear()
        found.ahead[3]()
        before = reach.cache_info().misses
        assert before >= 1, "and what other tests have prepared meanwhile"
        done = threading.Event()
        Ahead().prepare([lambda: 1 / 0, *found.ahead[:9], done.set], after=0.2)
        assert not done.wait(0.1), "nothing is made while sliders move"
        assert done.wait(60)
        assert reach.cache_info().misses > before, "an error does not end it"


class TestBackwards:
    def test_the_least_epsilon_is_found(self):
        for wanted in (0.0501, 0.2, 0.877, 1.234, 9.99, 10.0):
            found = least_epsilon(lambda epsilon, wanted=wanted: epsilon >= wanted)
            assert wanted <= found <= wanted * 1.01
        assert least_epsilon(lambda _: False) is None and least_epsilon(lambda _: True) == EPSILONS[0]
        assert least_epsilon(lambda e: e >= 0.95, lambda stop: lambda _: True) == 1.0, "what is returned was tried"

    @pytest.mark.parametrize("keys", ["1", "2"])
    def test_a_key_appears_with_that_epsilon_and_not_with_less(self, keys):
        found = answer("backwards", frequency="50", probability="0.9", max_keys_per_unit=keys)
        best = float(found.tiles[0][1])

        def probability(epsilon):
            channel: Reach = reach(epsilon, 1e-8, int(keys), "auto", "user_id", "query")
            return channel.channel.reporting_probability([50])[0]

        assert probability(best) >= 0.9 > probability(best * 0.97)
        assert f"epsilon={best}" in found.python and found.plots[0]["mark"][1] <= 50
        assert eval(found.python.split("\n")[-1], {"ds": ds}) == best
        shown = run(*shlex.split(found.command.split("\n")[-1])[1:])
        assert f"epsilon {best:g}" in shown.stdout, shown.stderr

    def test_counts_are_as_exact_as_asked(self):
        found = answer("backwards", goal="exact counts", error="10", max_keys_per_unit="1")
        best = float(found.tiles[0][1])
        assert ds.preview(privacy_unit="row", epsilon=best, delta=1e-8).width // 2 <= 10
        assert ds.preview(privacy_unit="row", epsilon=best * 0.9, delta=1e-8).width // 2 > 10

    def test_what_no_epsilon_gives_is_told(self):
        assert "No epsilon up to 10" in answer("backwards", frequency="1", max_keys_per_unit="1").headline
        for texts in ({"probability": "1"}, {"probability": "0"}, {"frequency": "0"}):
            with pytest.raises(InvalidValue):
                answer("backwards", **texts)


class TestClients:
    def test_numbers_are_those_of_the_plan(self):
        plan = ds.federated.plan(1.0, 1e-8)
        found = answer("clients")
        assert [tile[1] for tile in found.tiles] == [
            f"{plan.rate:.4g}", f"{plan.threshold} reports", f"{frequency_at(plan, 0.5)} clients"
        ]  # fmt: skip
        points = plotted(found, 0)["sampled clients"]
        assert list(points.values()) == plan.reporting_probability(list(points)).tolist()

    def test_what_is_left_out_is_searched_for(self):
        found = answer("clients", rate="0.2", neighbours="replace", hostile="2")
        plan = ds.federated.plan(1.0, 1e-8, rate=0.2, neighbours="replace", hostile=2)
        assert found.tiles[1][1] == f"{plan.threshold} reports"
        assert len(found.plots[0]["lines"]) == 1, "an optimal channel for 'add_remove' promises something else"


@pytest.fixture
def ledger(tmp_path):
    book = ds.Ledger(tmp_path / "budget.ledger", epsilon=2.0, delta=1e-6, unit="user_id")
    for week in range(3):
        book.spend(Guarantee(0.25, 1e-8, unit="user_id"), f"week {week}")
    return book


class TestBudget:
    def test_it_shows_what_is_left_and_what_fits(self, ledger):
        files = Files(ledgers={"budget.ledger": ledger.path})
        found = answer("budget", files, epsilon="0.5", delta="1e-08")
        room = ledger.room_for(Guarantee(0.5, 1e-8, unit="user_id"))
        assert found.headline.startswith(f"{room} more releases") and room == 2
        assert found.tiles[0][1] == f"epsilon {ledger.remaining().epsilon:g}"
        burned = plotted(found, 0)["left"]
        assert burned == {0: 2.0, 1: 1.75, 2: 1.5, 3: 1.25} and burned[3] == ledger.remaining().epsilon
        assert found.table["columns"][3]["values"] == ["week 0", "week 1", "week 2"]
        assert "does not fit" in answer("budget", files, epsilon="1.5").headline

    def test_it_only_reads(self, ledger):
        before = ledger.path.read_bytes()
        answer("budget", Files(ledgers={"b": ledger.path}))
        assert ledger.path.read_bytes() == before and len(ledger) == 3

    def test_room_is_what_spends_find(self, ledger):
        one = Guarantee(0.3, 1e-8, unit="user_id")
        room = ledger.room_for(one)
        for _ in range(room):
            ledger.spend(one)
        assert ledger.room_for(one) == 0
        with pytest.raises(ds.errors.BudgetExceeded):
            ledger.spend(one)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, channel = tmp_path_factory.mktemp("published"), ds.channels.optimal(1.0, 1e-3)
    channel.release(["tea", "milk", "<b>rum</b>"], [900, 700, 500]).save(place / "may")
    channel.release(["tea", "milk", "ale"], [950, 90, 600]).save(place / "june")
    channel.release(["tea"], [900], keys_only=True).save(place / "keys")
    return place


class TestPublished:
    def test_a_release_is_shown_with_the_parts_of_its_certificate(self, folder):
        made = ds.Release.load(folder / "may")
        found = answer("published", Files(folder), release="may")
        columns = {column["name"]: column["values"] for column in found.table["columns"]}
        assert columns["count"] == made.table.column("count").to_pylist()
        assert columns["key"] == made.table.column("key").to_pylist()
        assert len(found.parts) == len(made.certificate.parts) and "1, 0.001" in found.headline
        assert found.python.endswith(f"ds.Release.load({str(folder / 'may')!r})")

    def test_the_folder_is_listed(self, folder):
        inputs = {one.name: one for one in VIEWS["published"].inputs(Files(folder))}
        assert inputs["release"].suggestions == ("june", "keys", "may") and inputs["release"].default == "june"
        assert Files(folder / "may").releases() == ["."]

    def test_two_releases_are_compared_by_key(self, folder):
        found = answer("published", Files(folder), release="may", other="june")
        rows = {row[0]: row[1:] for row in zip(*(column["values"] for column in found.table["columns"]), strict=True)}
        assert set(rows) == {"tea", "milk", "<b>rum</b>", "ale"}
        assert rows["ale"][0] is None and rows["ale"][-1] == "only in the other"
        assert rows["<b>rum</b>"][-1] == "only in the first"
        assert rows["milk"][-1] == "apart" and abs(rows["milk"][2] - 90) < 40
        assert found.facts[0] == ["", "may", "june"]

    def test_a_warning_holds_for_either_of_two_releases(self, tmp_path):
        channel = ds.channels.optimal(1.0, 1e-3)
        channel.release(["tea"], [900]).save(tmp_path / "real")
        channel.release(["tea"], [900], source=insecure_source(1)).save(tmp_path / "trial")
        alone, both = (answer("published", Files(tmp_path), release="real", other=other) for other in ("", "trial"))
        assert UNSAFE in both.notes and UNSAFE not in alone.notes

    def test_what_cannot_be_compared_is_refused(self, folder):
        with pytest.raises(TypeError, match="other has no counts"):
            answer("published", Files(folder), release="may", other="keys")


def test_inputs_have_the_words_of_the_requests():
    for view, request in (("plan", ReleaseRequest), ("clients", HistogramRequest)):
        described = {field.name: field.metadata for field in fields(request)}
        own = [one for one in VIEWS[view].inputs(Files()) if one.name in described]
        assert len(own) >= 6
        for one in own:
            if one.name != "max_keys_per_unit":  # its field also speaks of what the page does not offer
                assert one.help.lower() == described[one.name]["help"].replace("`", "").lower()
            assert set(one.choices) <= set(described[one.name]["choices"])


def test_every_default_and_stop_is_accepted():
    for view in VIEWS.values():
        for one in view.inputs(Files()):
            assert [one.read(stop) for stop in one.stops] == sorted(one.read(stop) for stop in one.stops)


def test_python_gives_what_is_shown():
    for view, texts in (
        ("plan", {"max_keys_per_unit": "1"}),
        (
            "plan",
            {"max_keys_per_unit": "1", "sums": "a b:0:2.5,c:-1:1", "means": "d:1:5", "min_units": "9", "rest": "yes"},
        ),
        ("clients", {"rate": "0.1"}),
        ("backwards", {"max_keys_per_unit": "1"}),
    ):
        found = answer(view, **texts)
        lines = found.python.split("\n")
        preview = eval(lines[1], {"ds": ds})
        assert dict(preview.lines()).items() <= {row[0]: row[1] for row in found.facts[1:]}.items()


def test_the_command_line_gives_what_is_shown(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"user_id": [1], "query": ["tea"]}), tmp_path / "events.parquet")
    totals = {"max_keys_per_unit": "1", "sums": "a b:0:2.5,c:-1:1", "means": "d:1:5", "min_units": "9", "rest": "yes"}
    for view, texts in (
        ("plan", {"epsilon": "0.7", "max_keys_per_unit": "1"}), ("plan", totals), ("clients", {"threshold": "30"})
    ):  # fmt: skip
        found = answer(view, **texts)
        for command in found.command.split("\n"):
            shown = run(*shlex.split(command)[1:], cwd=tmp_path)
            assert shown.returncode == 0, shown.stderr
        value = next(row[1] for row in found.facts if row[0] in ("each key gets", "charged by a device's budget"))
        assert value.split(",")[0] in re.sub(
            r"\s+", " ", run(*shlex.split(found.command.split("\n")[0])[1:], cwd=tmp_path).stdout
        )


def test_a_law_counts_keys():
    law = Law.of(np.array([5, 5, 0, 3]))
    assert law.total == 3 and law.by_rank[1].tolist() == [5, 5, 3]
