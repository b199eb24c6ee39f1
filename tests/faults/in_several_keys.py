"""Faults of units with several keys: coins that show keys, and the counts that follow."""

from fault import Fault

_TABLES, _ROWS, _CHANNEL = (
    f"channels/reporting/{name}.py" for name in ("coin_tables", "counted_rows", "report_then_count")
)
_ADD_UP = "channels/test_several_keys.py::test_losses_of_all_keys_add_up_to_what_is_promised"
_DRAWN = "channels/test_report_then_count.py::TestWhatIsDrawn"
_REFUSED = "channels/test_report_then_count.py::TestWhatIsRefused"

FAULTS = [
    Fault(
        "report then count: several rows cost as one",
        _CHANNEL,
        "upper(lambda: ball(self.max_rows) / ball(self.sigma))",
        "upper(lambda: 1 / ball(self.sigma))",
        f"{_REFUSED}::test_forged_fields",
    ),
    Fault(
        "report then count: saved numbers are trusted",
        _CHANNEL,
        "if noise_number(self.coins) > self.delta_:",
        "if False:",
        f"{_REFUSED}::test_forged_fields",
    ),
    Fault(
        "report then count: a table for one key of several",
        _CHANNEL,
        "return Coins(self.max_keys, self.epsilon",
        "return Coins(1, self.epsilon",
        f"{_ADD_UP} {_REFUSED}",
    ),
    Fault(
        "report then count: each row is a step of the coin",
        _ROWS,
        "shown = np.flatnonzero(self.table.select(-(-frequencies // self.step), source))",
        "shown = np.flatnonzero(self.table.select(frequencies, source))",
        _DRAWN,
    ),
    Fault(
        "report then count: tokens count too soon",
        _ROWS,
        "tokens[shown] = np.maximum(np.maximum(frequencies[shown], self.start)",
        "tokens[shown] = np.maximum(np.maximum(frequencies[shown], self.start - 1)",
        _DRAWN,
    ),
    Fault(
        "report then count: half the noise is drawn",
        _ROWS,
        "rounded_gaussian(self.sigma, len(shown)",
        "rounded_gaussian(self.sigma / 2, len(shown)",
        _DRAWN,
    ),
    Fault(
        "coins: the noise of counts is not looked at",
        _TABLES,
        "shifts = np.where(np.arange(last) >= coins.first, coins.distance, 0.0)",
        "shifts = np.zeros(last)",
        f"{_REFUSED}::test_another_first_has_another_table",
    ),
    Fault(
        "coins: rows are not checked",
        _TABLES,
        "if (found > coins.delta).any():",
        "if False:",
        f"{_REFUSED}::test_forged_rows",
    ),
    Fault(
        "coins: one direction is checked",
        _TABLES,
        "for ours, theirs in (pair, pair[::-1]):",
        "for ours, theirs in (pair,):",
        f"{_REFUSED}::test_forged_rows",
    ),
    Fault(
        "coins: a row may fall",
        _TABLES,
        "or falls[:-1].any()",
        "or False",
        f"{_REFUSED}::test_forged_rows",
    ),
    Fault(
        "coins: a table may begin above zero",
        _TABLES,
        "if high[0] or low[0] or",
        "if",
        f"{_REFUSED}::test_forged_rows",
    ),
    Fault(
        "report then count: a plan for two keys of several",
        "jobs/plan.py",
        "return channels.report_then_count(epsilon, delta, keys, rows",
        "return channels.report_then_count(epsilon, delta, 2, rows",
        f"{_DRAWN}::test_a_unit_with_keys_of_its_own_through_the_whole_path",
    ),
]
