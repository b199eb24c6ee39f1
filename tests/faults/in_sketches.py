"""Faults of sketches and their releases."""

from fault import Fault

FAULTS = [
    Fault(
        "Misra-Gries: a threshold one lower",
        "sketches/noisy.py",
        "np.where(noisy >= self.threshold, noisy, 0)",
        "np.where(noisy >= self.threshold - 1, noisy, 0)",
        "sketches/test_noisy.py::test_the_rate_of_a_key_that_only_one_sketch_holds",
    ),
    Fault(
        "Misra-Gries: the shared noise is left out",
        "sketches/noisy.py",
        "len(counters), source=source) + shared",
        "len(counters), source=source)",
        "sketches/test_noisy.py::test_the_loss_is_told_with_the_noise_that_all_counters_share",
    ),
    Fault(
        "Misra-Gries: the true loss is told",
        "sketches/noisy.py",
        "decrements=decrements - shared",
        "decrements=decrements",
        "sketches/test_noisy.py::test_the_loss_is_told_with_the_noise_that_all_counters_share",
    ),
    Fault(
        "Misra-Gries: one odd key instead of two",
        "sketches/noisy.py",
        "else {1: 1, 0: 1}",
        "else {0: 1}",
        "sketches/test_noisy.py::test_no_output_tells_neighbouring_streams_apart"
        " sketches/test_noisy.py::test_thresholds",
    ),
    Fault(
        "Misra-Gries: a group costs the sum of deltas",
        "sketches/noisy.py",
        "math.expm1(epsilon) / math.expm1(epsilon / steps)",
        "steps",
        "sketches/test_noisy.py::test_a_unit_of_several_items_is_paid_for_by_its_steps",
    ),
    Fault(
        "Misra-Gries: several items of a unit cost as one",
        "sketches/misra_gries.py",
        "self.counters, items_per_unit)",
        "self.counters, 1)",
        "sketches/test_releases.py::test_several_items_of_a_unit",
    ),
    Fault(
        "Misra-Gries: another program's sketch as ours",
        "sketches/releasing.py",
        "standard=True",
        "standard=False",
        "sketches/test_releases.py::test_standard_sketches_need_a_higher_threshold",
    ),
    Fault(
        "sketches: the spend comes after the draw",
        "sketches/releasing.py",
        """    charge(ledger, mechanism, note)
    made, tokens = mechanism.draw(table.values, lost, randomness)
""",
        """    made, tokens = mechanism.draw(table.values, lost, randomness)
    charge(ledger, mechanism, note)
""",
        "sketches/test_releases.py::test_a_ledger_is_charged_before_anything_is_drawn",
    ),
    Fault(
        "universe: the spend comes after the draw",
        "sketches/releasing.py",
        """    charge(ledger, mechanism, note)
    inside = np.flatnonzero(places >= 0)
    made, tokens = mechanism.draw(table.values[inside], lost, randomness)
""",
        """    inside = np.flatnonzero(places >= 0)
    made, tokens = mechanism.draw(table.values[inside], lost, randomness)
    charge(ledger, mechanism, note)
""",
        "sketches/test_releases.py::test_a_ledger_is_charged_before_anything_is_drawn",
    ),
    Fault(
        "Misra-Gries: which key leaves depends on the table",
        "sketches/compiled/integers.py",
        "sort(zeros, spare, count, 0)",
        "pass",
        "sketches/test_misra_gries.py::test_many_keys_leave_in_order",
    ),
    Fault(
        "Misra-Gries: a new key starts with two",
        "sketches/compiled/integers.py",
        "x, now.decrements + 2",
        "x, now.decrements + 3",
        "sketches/test_misra_gries.py::test_all_short_streams",
    ),
    Fault(
        "users: an item twice counts twice",
        "sketches/compiled/integers.py",
        "if seen[code] == user:",
        "if False:",
        "sketches/test_users.py::test_what_one_user_says_twice_counts_once_and_nulls_do_not_count",
    ),
    Fault(
        "users: counters are lowered by two",
        "sketches/compiled/integers.py",
        "lowered += 1",
        "lowered += 2",
        "sketches/test_users.py::test_the_fast_loop_does_what_the_few_lines_do",
    ),
    Fault(
        "users: merging forgets what it took away",
        "sketches/users.py",
        "merged.decrements += over",
        "pass",
        "sketches/test_users.py::test_merged_sketches_are_those_of_the_few_lines_and_count_on",
    ),
    Fault(
        "merges: one counter too many",
        "sketches/merged.py",
        "np.partition(values, -counters - 1)[-counters - 1]",
        "np.partition(values, -counters)[-counters]",
        "sketches/test_users.py::test_merged_sketches_are_those_of_the_few_lines_and_count_on",
    ),
    Fault(
        "one-sided: noise for one counter",
        "sketches/one_sided.py",
        "shared_noise(self.epsilon, self.delta, self.counters)",
        "shared_noise(self.epsilon, self.delta, 1)",
        "sketches/test_users.py::test_a_user_with_keys_of_its_own_shows_at_most_with_delta"
        " sketches/test_users.py::test_the_noise_grows_with_the_root_of_the_counters_and_not_with_the_sets",
    ),
    Fault(
        "one-sided: the true loss is told",
        "sketches/one_sided.py",
        "lost=-(less // unit)",
        "lost=lost",
        "sketches/test_shared_noise.py::test_what_is_drawn_has_the_shared_part_and_the_own_part",
    ),
    Fault(
        "one-sided: the shared noise is left out",
        "sketches/one_sided.py",
        "if noise.shared else 0",
        "if not noise.shared else 0",
        "sketches/test_shared_noise.py::test_what_is_drawn_has_the_shared_part_and_the_own_part",
    ),
    Fault(
        "one-sided: the shared noise moves the loss like the counters",
        "sketches/one_sided.py",
        "* unit + shared + int(own[-1])",
        "* unit - shared + int(own[-1])",
        "sketches/test_shared_noise.py::test_what_is_drawn_has_the_shared_part_and_the_own_part",
    ),
    Fault(
        "one-sided: a threshold one step lower",
        "sketches/one_sided.py",
        "np.where(noisy >= noise.least, noisy, 0)",
        "np.where(noisy >= noise.least - 1, noisy, 0)",
        "sketches/test_shared_noise.py::test_nothing_below_the_threshold_is_told",
    ),
    Fault(
        "shared noise: moves are half as visible",
        "sketches/shared_noise.py",
        "else total / (4 * a * b)",
        "else total / (8 * a * b)",
        "sketches/test_shared_noise.py::test_no_move_in_one_direction_is_more_visible_than_mu",
    ),
    Fault(
        "shared noise: one odd key instead of all",
        "sketches/shared_noise.py",
        "up = self._shown(end)",
        "up = self._shown(min(end, 1))",
        "sketches/test_shared_noise.py::test_the_proof_agrees_with_plain_floats_for_every_number_of_odd_keys",
    ),
    Fault(
        "shared noise: rounding is forgotten",
        "sketches/shared_noise.py",
        "return (self.least - 0.5) * self.step - 1",
        "return self.least * self.step - 1",
        "sketches/test_shared_noise.py::test_the_proof_agrees_with_plain_floats_for_every_number_of_odd_keys",
    ),
    Fault(
        "shared noise: the grid costs less than it does",
        "sketches/shared_noise.py",
        "return 4 * q / (1 - q)",
        "return q / (1 - q)",
        "sketches/test_shared_noise.py::test_with_a_shared_noise_on_the_grid_the_density_is_nearly_the_same",
    ),
    Fault(
        "shared noise: a ledger is not charged for the threshold",
        "sketches/shared_noise.py",
        "self._shown(self.counters) / (1 - ball(near))",
        "self._shown(0) / (1 - ball(near))",
        "sketches/test_shared_noise.py::test_no_output_tells_neighbours_apart",
    ),
    Fault(
        "sums: one unit of sensitivity less",
        "sketches/summed.py",
        "return 2 * self.counters\n",
        "return 2 * self.counters - 1\n",
        "sketches/test_summed.py::test_the_sensitivity_is_2k",
    ),
    Fault(
        "bounded merges: what was lost is not paid for",
        "sketches/summed.py",
        "return self.counters + 1 if self.bounded",
        "return self.counters if self.bounded",
        "sketches/test_summed.py::test_the_sum_has_less_noise_than_the_bounded_merge",
    ),
    Fault(
        "sums: the true number of items is told",
        "sketches/summed.py",
        "counted = items + int(discrete_laplace(self.scale, 1, source=source)[0])",
        "counted = items",
        "sketches/test_summed.py::test_values_and_what_was_lost_are_told_with_noise"
        " sketches/test_rounded.py::test_values_and_the_number_of_items_are_told_with_noise",
    ),
    Fault(
        "sums: a lower threshold",
        "sketches/summed.py",
        "np.where(noisy >= self.least, noisy, 0)",
        "np.where(noisy >= self.least - self.counters, noisy, 0)",
        "sketches/test_summed.py::test_nothing_below_the_threshold_is_told"
        " sketches/test_rounded.py::test_the_rate_of_a_key_of_one_item",
    ),
    Fault(
        "rounded sums: small values are not rounded, but raised",
        "sketches/rounded.py",
        "np.flatnonzero(uniform_integers(len(values), full, source) < values)",
        "np.flatnonzero(uniform_integers(len(values), full, source) >= 0)",
        "sketches/test_rounded.py::test_rounding_is_exact sketches/test_rounded.py::test_the_rate_of_a_key_of_one_item",
    ),
    Fault(
        "rounded sums: rounding favours keys",
        "sketches/rounded.py",
        "full, source) < values",
        "full, source) <= values",
        "sketches/test_rounded.py::test_rounding_is_exact",
    ),
    Fault(
        "rounded sums: keys of small values cost half",
        "sketches/rounded.py",
        "return max(counters / full * tau, others, large)",
        "return max(counters / full * tau, others, large) / 2",
        "sketches/test_rounded.py::test_no_output_tells_neighbouring_streams_apart"
        " sketches/test_rounded.py::test_no_change_of_values_costs_more"
        " sketches/test_rounded.py::test_the_cases_exclude_each_other",
    ),
    Fault(
        "rounded sums: the noise of a block is that of its last case",
        "sketches/rounded.py",
        "[(start, min(start + size - 1, last))",
        "[(min(start + size - 1, last), min(start + size - 1, last))",
        "sketches/test_rounded.py::test_blocks_bound_every_case",
    ),
    Fault(
        "rounded sums: the cases exclude each other at any scale",
        "sketches/rounded.py",
        "wide = Fraction(scale) * Fraction(step) >= counters and tau",
        "wide = tau",
        "sketches/test_rounded.py::test_noise_for_less_than_the_large_change_is_not_certified",
    ),
    Fault(
        "rounded sums: the number of items costs nothing",
        "sketches/rounded.py",
        "_moved(step - (2 * j - units) / scale",
        "_moved(step - (2 * j - units - 1) / scale",
        "sketches/test_rounded.py::test_the_losses_of_the_noise_by_enumeration",
    ),
    Fault(
        "merged releases: a source that is silent has nothing",
        "sketches/aggregated.py",
        "silent = (self.sources - shown) * (self.threshold - 1)",
        "silent = 0",
        "sketches/test_aggregated.py::test_where_nobody_publishes_a_key_the_bound_counts_every_source",
    ),
    Fault(
        "merged releases: seeded ones pass as safe",
        "sketches/aggregated.py",
        "unsafe_to_publish=any(",
        "unsafe_to_publish=all(",
        "sketches/test_aggregated.py::test_a_seeded_release_makes_the_whole_unsafe",
    ),
    Fault(
        "universe: zeros come out too rarely",
        "sketches/summed.py",
        "self._tail(self.least) * (1 + 1e-12)",
        "self._tail(self.least) * 0.5",
        "sketches/test_summed.py::test_zeros_of_a_large_universe_are_not_touched"
        " sketches/test_summed.py::test_few_zeros_follow_the_noise_of_each_element",
    ),
    Fault(
        "universe: of equal tokens a held key wins",
        "sketches/releasing.py",
        "np.lexsort((found, -every_token))",
        'np.argsort(-every_token, kind="stable")',
        "sketches/test_releases.py::TestUniverse::test_of_equal_tokens_the_public_order_decides",
    ),
    Fault(
        "merged: more than k counters",
        "sketches/merged.py",
        "_positive(keys, values - over)",
        "_positive(keys, values)",
        "sketches/test_releases.py::TestMerged::test_sums_and_bounded_merges_hold_the_truth",
    ),
    Fault(
        "parallel streams: files are dealt out by their sizes",
        "cli/stream_files.py",
        "for path in files[number :: len(parts)]:",
        "for path in sorted(files, key=lambda file: Path(file).stat().st_size)[number :: len(parts)]:",
        "cli/test_stream_files.py::test_files_are_dealt_out_in_turns_whatever_they_hold",
    ),
    Fault(
        "parallel streams: what the state holds decides on the mechanism",
        "cli/stream_files.py",
        "parts[0] if kept is None and",
        "parts[0] if not (kept and kept.items) and",
        "cli/test_stream_files.py::test_what_is_merged_is_public",
    ),
]
