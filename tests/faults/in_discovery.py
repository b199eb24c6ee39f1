"""Faults of Renyi selection, of picks after it, and of discovery on tables."""

from fault import Fault

FAULTS = [
    Fault(
        "a unit weighs more than one",
        "discovery/compiled/shared_weights.py",
        "2 * weight + 1 <= spare:",
        "2 * weight - 40 <= spare:",
        "discovery/test_two_rounds.py::test_the_squares_of_one_unit_sum_to_at_most_one",
    ),
    Fault(
        "round one is not paid for",
        "discovery/two_rounds.py",
        "lower(lambda: ball(self.tau) - ball(self.order)",
        "lower(lambda: ball(self.tau) - 0 * ball(self.order)",
        "discovery/test_two_rounds.py",
    ),
    Fault(
        "a table is not checked",
        "channels/reporting/reporting_tables.py",
        "        if row:\n            raise NotCertified",
        "        if row < 0:\n            raise NotCertified",
        "discovery/test_renyi.py::test_a_forged_row_is_refused",
    ),
    Fault(
        "a sum of zero is selected by chance",
        "channels/reporting/reporting_tables.py",
        "open_ = np.flatnonzero((rows > 0) & ~chosen)",
        "open_ = np.flatnonzero(~chosen)\n        rows = np.maximum(rows, 1)",
        "discovery/test_renyi.py::test_a_sum_of_zero_is_never_published_and_a_large_one_surely",
    ),
    Fault(
        "hit units are counted again",
        "discovery/compiled/removed_units.py",
        "counts[held[place]] -= 1",
        "counts[held[place]] -= 0",
        "discovery/test_hitting_set.py",
    ),
    Fault(
        "the scale of picks is too small",
        "discovery/picker.py",
        "upper(lambda: 1 / ball(self.each_epsilon))",
        "upper(lambda: 0.8 / ball(self.each_epsilon))",
        "discovery/test_top_k.py::test_picks_follow_the_exponential_mechanism discovery/test_hitting_set.py",
    ),
    Fault(
        "counts of picks are not paid for",
        "discovery/top_k.py",
        "return upper(lambda: ball(picks) + ball(counts))",
        "return picks",
        "discovery/test_top_k.py",
    ),
    Fault(
        "the median of sizes has noise of half its scale",
        "discovery/typical_size.py",
        "scale=laplace_scale(self.epsilon, 1)",
        "scale=laplace_scale(self.epsilon, 1) / 2",
        "discovery/test_typical_size.py",
    ),
    Fault(
        "the private median is not paid for",
        "jobs/discover.py",
        "remaining(request.epsilon, size.epsilon)",
        "request.epsilon",
        "jobs/test_discover.py::test_the_choice_is_by_the_typical_number_of_keys",
    ),
    Fault(
        "a discovery is charged after it is drawn",
        "jobs/discover.py",
        "        charge(book, cost, note)\n        found = found or",
        "        found = found or",
        "jobs/test_discover.py::test_the_ledger_is_charged_once_and_first",
    ),
    Fault(
        "selection sees more keys of a unit than it pays for",
        "jobs/discover.py",
        "found = made.selector.select(held.bounded(made.max_keys), source)",
        "found = made.selector.select(held, source)",
        "jobs/test_discover.py::test_picks_see_all_keys_and_selection_only_some",
    ),
    Fault(
        "the first round is not spent",
        "discovery/renyi_selection.py",
        "ball(coins) + ball(order) * ball(self.noise_rho)",
        "ball(coins)",
        "discovery/test_two_rounds.py::test_it_spends_both_rounds",
    ),
    Fault(
        "picks are not spent",
        "discovery/picker.py",
        "return *found, Renyi(orders, map(self._divergence, orders))",
        "return found",
        "discovery/test_top_k.py::test_it_spends_what_the_selector_does_and_the_picks",
    ),
]
