"""Small faults that break privacy, each with the narrowest tests that should notice it; `run.py` plants them.

To add one: choose a text that occurs once in its file, short and unlikely to change, and what a tired programmer might
have written instead. The code must still run: the fault is in what it promises. If no test notices, write that test.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`old` becomes `new` in a file of src/dpsieve; `tests` are files or tests below tests/, with spaces between."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    @property
    def path(self) -> str:
        return f"src/dpsieve/{self.file}"


RANDOMNESS = [
    Fault(
        "Laplace noise of half the scale",
        "randomness/noise.py",
        "NoiseSampler(Laplace(scale) if",
        "NoiseSampler(Laplace(scale / 2) if",
        "randomness/test_noise.py::test_laplace_follows_its_distribution",
    ),
    Fault(
        "Gaussian noise of half the scale",
        "randomness/noise.py",
        "else Gaussian(scale))",
        "else Gaussian(scale / 2))",
        "randomness/test_noise.py::test_narrow_gaussian_follows_its_distribution",
    ),
    Fault(
        "rounded Gaussian noise of half the scale",
        "randomness/noise.py",
        "/ arb(sigma) / arb(2).sqrt()",
        "/ arb(sigma / 2) / arb(2).sqrt()",
        "randomness/test_noise.py::test_rounded_gaussian_follows_its_distribution",
    ),
    Fault(
        "the scale of the noise is rounded down",
        "randomness/noise.py",
        "near if Fraction(near) >= exact else math.nextafter(near, math.inf)",
        "near",
        "randomness/test_noise.py::test_the_scale_for_a_budget_is_the_least_float_that_is_enough",
    ),
    Fault(
        "a tie in a table is not refined",
        "randomness/table.py",
        "values[tie] = self._refine(int(words[tie]), source)",
        "pass",
        "randomness/test_table.py",
    ),
    Fault(
        "a tie of a coin is not refined",
        "randomness/binomial.py",
        "open_[words == edge], p",
        "open_[:0], p",
        "randomness/test_binomial.py::test_a_tie_of_the_first_word_is_decided_by_the_next",
    ),
    Fault(
        "a tie of a sampled key is not refined",
        "sampling/samplers.py",
        "below[tie] = _refine(float(scaled[tie]) % 1.0, source)",
        "pass",
        "sampling/test_samplers.py::TestExactDecisions",
    ),
    Fault(
        "a noisy order of half the noise",
        "randomness/order.py",
        "len(values)), scale, resolve",
        "len(values)), scale / 2, resolve",
        "randomness/test_order.py::test_picks_follow_the_exponential_mechanism",
    ),
    Fault(
        "some integers are likelier than others",
        "randomness/distinct.py",
        "words[words < below]",
        "words % below",
        "sketches/test_summed.py::test_distinct_places",
    ),
    Fault(
        "no new key after a fork",
        "randomness/source.py",
        "return self._process == _Process.here()",
        "return True",
        "randomness/test_source.py::test_forked_children_do_not_share_a_stream",
    ),
    Fault(
        "a process number stands for a process",
        "randomness/source.py",
        "return cls.generation, os.getpid()",
        "return 0, os.getpid()",
        "randomness/test_source.py::test_a_child_that_has_the_same_process_number",
    ),
    Fault(
        "the system source is seeded",
        "randomness/source.py",
        "stream = Stream(os.urandom)",
        "stream = Stream(bytes)",
        "randomness/test_source.py::test_threads_do_not_share_a_stream",
    ),
    Fault(
        "a stream keeps its key",
        "randomness/source.py",
        "self._rekey(self._cipher.update(bytes(_KEY + _NONCE)))",
        "pass",
        "randomness/test_source.py::test_a_stream_changes_its_key_as_it_goes",
    ),
    Fault(
        "a source can be copied",
        "randomness/source.py",
        "def __reduce__",
        "def _reduce",
        "randomness/test_source.py::test_a_source_cannot_be_copied",
    ),
    Fault(
        "a seeded source may be published",
        "testing.py",
        "publishable = False",
        "publishable = True",
        "randomness/test_source.py::test_the_seeded_source_repeats_itself_and_says_that_it_is_unsafe",
    ),
    Fault(
        "found keys are not thinned",
        "sampling/stream.py",
        "keep = words < np.uint64(_CLEAR)",
        "keep = np.ones(len(words), np.bool_)",
        "sampling/test_stream.py::test_a_coin_beyond_the_ratio_drops_the_key",
    ),
]

KERNEL = [
    Fault(
        "kernel: floats check one direction",
        "privacy/kernel.py",
        "((low, up), (up, low))",
        "((low, up), (low, up))",
        "privacy/test_kernel.py::test_the_verdict_is_that_of_the_definition",
    ),
    Fault(
        "kernel: integers check one direction",
        "privacy/kernel.py",
        "return max(up, down)",
        "return up",
        "privacy/test_kernel.py::test_the_verdict_is_that_of_the_definition",
    ),
    Fault(
        "kernel: e^epsilon is rounded up",
        "privacy/kernel.py",
        "return total >> 64",
        "return (total >> 64) + 2",
        "privacy/test_kernel.py::test_the_factor_is_below_e_to_the_epsilon_and_close",
    ),
    Fault(
        "kernel: the tail is not checked",
        "privacy/kernel.py",
        "held.edges + shift",
        "held.edges",
        "privacy/test_kernel.py::test_a_wrong_tail_is_refused",
    ),
    Fault(
        "kernel: row one is not compared with nothing",
        "privacy/kernel.py",
        "_join(last or start, _row(heard, 0))",
        "_join(last or _row(heard, 0), _row(heard, 0))",
        "privacy/test_kernel.py",
    ),
    Fault(
        "kernel: pairs across parts are skipped",
        "privacy/kernel.py",
        "rows.high[k : k + step + 1], rows.low[k : k + step + 1]",
        "rows.high[k : k + step], rows.low[k : k + step]",
        "privacy/test_kernel.py::TestHostileTables::test_a_jump_is_found_between_any_two_rows",
    ),
    Fault(
        "kernel: rows may sum to more than one",
        "privacy/kernel.py",
        "(carry > 1) | ((carry == 1) & ~zero)",
        "carry > 1",
        "privacy/test_kernel.py::test_rows_above_one_and_malformed_rows_are_refused",
    ),
    Fault(
        "kernel: what is below the floor is not checked",
        "privacy/kernel.py",
        "_silent(part, count + 1 + k)",
        "pass",
        "privacy/test_kernel.py::TestHostileTables::test_what_is_below_the_floor_must_fit_too",
    ),
    Fault(
        "a formula certifies whatever it gives",
        "privacy/certificate.py",
        "if not worst <= guarantee.delta:",
        "if False:",
        "channels/test_known.py::test_a_promise_that_is_not_kept_is_not_certified",
    ),
    Fault(
        "divergence in one direction",
        "privacy/divergence.py",
        "return max(_excess(p, q, epsilon), _excess(q, p, epsilon))",
        "return _excess(p, q, epsilon)",
        "privacy/test_divergence.py::test_directions_differ_and_the_curve_takes_the_worse",
    ),
]

COMPOSITION = [
    Fault(
        "replacement: delta is only doubled",
        "privacy/guarantee.py",
        "(1 + math.exp(self.epsilon)) * self.delta",
        "2 * self.delta",
        "privacy/test_guarantee.py",
    ),
    Fault(
        "Gaussian: the number of mechanisms is ignored",
        "privacy/gaussian.py",
        "mu = ball(count).sqrt() * ball(sensitivity)",
        "mu = ball(sensitivity)",
        "privacy/test_gaussian.py",
    ),
    Fault(
        "zCDP: the number of mechanisms is ignored",
        "privacy/zcdp.py",
        "ball(rho) * count",
        "ball(rho)",
        "privacy/test_zcdp.py",
    ),
    Fault(
        "repeated: delta counts once",
        "privacy/repeated.py",
        "(k * (-ball(each_delta)).log1p()).exp()",
        "(-ball(each_delta)).log1p().exp()",
        "privacy/test_repeated.py",
    ),
    Fault(
        "composition: leaks count once",
        "privacy/spends.py",
        "log1p() * count for delta",
        "log1p() for delta",
        "privacy/test_composition.py::test_different_spends_against_every_joint_outcome"
        " privacy/test_composition.py::test_equal_spends_meet_the_optimum",
    ),
    Fault(
        "composition: Gaussians count once",
        "privacy/losses.py",
        "** 2 * c for",
        "** 2 for",
        "privacy/test_composition.py::test_gaussians_are_one_gaussian",
    ),
    Fault(
        "composition: what is cut off is lost",
        "privacy/losses.py",
        "self.lost + other.lost + 2 * _TAIL",
        "0.0",
        "privacy/test_composition.py::test_what_is_cut_off_is_given_back",
    ),
    Fault(
        "composition: losses are rounded down",
        "privacy/losses.py",
        "upward = np.expm1(cells * step - at) / np.expm1(-step)",
        "upward = np.zeros(len(at))",
        "privacy/test_composition.py::test_different_spends_against_every_joint_outcome"
        " privacy/test_composition.py::test_never_below_the_truth_and_never_worse_than_basic",
    ),
]

LEDGER = [
    Fault(
        "ledger: the budget is not checked",
        "privacy/ledger_chain.py",
        "return _delta(self.composition(spend), self.budget.epsilon) <= self.budget.delta",
        "return True",
        "privacy/test_ledger.py::test_a_refused_spend_says_what_is_left_and_writes_nothing",
    ),
    Fault(
        "ledger: equal spends count once",
        "privacy/ledger_chain.py",
        "+= spend.count * times",
        "+= spend.count",
        "privacy/test_ledger.py::test_a_budget_can_be_split_as_one_would_on_paper",
    ),
    Fault(
        "ledger: the unit is ignored",
        "privacy/ledger.py",
        "if guarantee.unit != self.budget.unit:",
        "if False:",
        "privacy/test_ledger.py::test_a_guarantee_for_another_unit_or_relation_cannot_be_added",
    ),
    Fault(
        "ledger: the relation is ignored",
        "privacy/ledger.py",
        'elif guarantee.neighbours == "replace":',
        "elif False:",
        "privacy/test_ledger.py::test_a_guarantee_for_another_unit_or_relation_cannot_be_added",
    ),
    Fault(
        "ledger: replacement costs no more",
        "privacy/ledger.py",
        "guarantee = guarantee.for_replacement()",
        "pass",
        "privacy/test_ledger.py::test_under_replacement_a_guarantee_for_adding_and_removing_is_converted",
    ),
    Fault(
        "ledger: a spend is not written",
        "privacy/ledger.py",
        "rows.append(entry)",
        "pass",
        "privacy/test_ledger.py::test_a_ledger_from_its_creation_to_its_end",
    ),
    Fault(
        "ledger: a spend is not durable",
        "privacy/ledger_store.py",
        "synchronous = EXTRA",
        "synchronous = OFF",
        "privacy/test_ledger.py::test_commits_reach_the_disk",
    ),
    Fault(
        "ledger: two may spend at once",
        "privacy/ledger_store.py",
        'with self._transaction("IMMEDIATE")',
        'with self._transaction("DEFERRED")',
        "privacy/test_ledger.py::test_ten_processes_at_once_create_one_ledger_and_never_overspend"
        " privacy/test_ledger.py::test_threads_share_one_ledger",
    ),
    Fault(
        "ledger: hashes are not checked",
        "privacy/ledger_store.py",
        "number != expected or not linked(stored, before, number, time, spend, note)",
        "number != expected",
        "privacy/test_ledger.py::test_a_row_that_was_changed_removed_or_moved_is_found",
    ),
    Fault(
        "ledger: others may read it",
        "privacy/ledger_store.py",
        "os.link(name, self.path)",
        "os.link((Path(name).chmod(0o644), name)[1], self.path)",
        "privacy/test_ledger.py::test_the_file_is_private_and_alone",
    ),
]

CHANNELS = [
    Fault(
        "tables: a step of more than e^epsilon",
        "channels/grid.py",
        "(2**46 - 1) >> 46",
        "(2**46 + 1) >> 46",
        "channels/test_rows.py::test_every_pair_of_rows_keeps_the_definition",
    ),
    Fault(
        "tables: more than delta at a step",
        "channels/grid.py",
        "(1 - Fraction(1, 2**36))",
        "(1 + Fraction(1, 2**36))",
        "channels/test_rows.py::test_every_pair_of_rows_keeps_the_definition",
    ),
    Fault(
        "a token is drawn from the next row",
        "channels/additive.py",
        "rows = np.minimum(part, self.last_row)",
        "rows = np.minimum(part + 1, self.last_row)",
        "channels/test_draws.py::test_tokens_follow_the_row",
    ),
    Fault(
        "only steps of one row are certified",
        "channels/contributions.py",
        '("simple", guarantee, 1, lag, largest_step=rows)',
        '("simple", guarantee, 1, lag)',
        "channels/test_contributions.py",
    ),
    Fault(
        "several rows of a unit cost as one",
        "channels/contributions.py",
        "lag = Lag([edge * rows for edge in whole.edges], [mass // rows for mass in whole.masses])",
        "lag = whole",
        "channels/test_contributions.py::test_rows_of_units_keep_every_step",
    ),
    Fault(
        "stability: a threshold one lower",
        "channels/baselines.py",
        "half = -((d if paper else 2 * d).log()) / e",
        "half = -((d if paper else 2 * d).log()) / e - 1",
        "channels/test_rows.py::test_stability_histograms_have_their_closed_form",
    ),
    Fault(
        "truncated geometric: k one lower",
        "channels/baselines.py",
        "k = max(1, 1 + floor_bounds(",
        "k = max(1, floor_bounds(",
        "channels/test_rows.py::test_truncated_geometric_selection",
    ),
    Fault(
        "Gaussian threshold: one lower",
        "channels/gaussian_threshold.py",
        "tails = [((g + 1 - lag)",
        "tails = [((g - lag)",
        "channels/test_contributions.py",
    ),
    Fault(
        "Gaussian threshold: half the noise",
        "channels/gaussian_threshold.py",
        "s, g, root = arb(sigma)",
        "s, g, root = arb(sigma / 2)",
        "channels/test_contributions.py",
    ),
    Fault(
        "Gaussian threshold: the noise costs nothing",
        "channels/gaussian_threshold.py",
        ", up.max(), down.max())",
        ", 0.0)",
        "channels/test_contributions.py",
    ),
    Fault(
        "Gaussian threshold: one key alone may show",
        "channels/gaussian_threshold.py",
        "-math.expm1(keys * silent)",
        "-math.expm1(silent)",
        "channels/test_contributions.py",
    ),
    Fault(
        "Gaussian threshold: saved numbers are trusted",
        "channels/contributions.py",
        "if gaussian_threshold_delta(epsilon, sigma, gap, keys) > delta:",
        "if False:",
        "channels/test_contributions.py::test_a_gaussian_that_was_saved_is_made_from_its_own_numbers",
    ),
    Fault(
        "sampled tables: 'nothing' falls too fast",
        "channels/compiled/advance.py",
        "if less(~keep_high, ~keep_low, pi_high, pi_low):",
        "if False:",
        "channels/test_rows.py::test_every_pair_of_rows_keeps_the_definition",
    ),
    Fault(
        "sampled tables: delta vanishes twice",
        "channels/compiled/advance.py",
        "return sub(parameters[3], parameters[4], lost_high, lost_low)",
        "return parameters[3], parameters[4]",
        "channels/test_rows.py::test_every_pair_of_rows_keeps_the_definition",
    ),
    Fault(
        "sampled tables: the tail is not certified",
        "channels/stepped.py",
        "delta=promise.delta, shift=self.resolution)",
        "delta=promise.delta)",
        "channels/test_rows.py::test_rows_that_have_not_settled_are_refused",
    ),
    Fault(
        "sampled tables: drawn from other rows than certified",
        "channels/stepped.py",
        "if index not in self._frozen:",
        "if True:",
        "channels/test_draws.py::TestSamplesOfRareAndHugeKeys::test_a_scheme_that_changes_its_mind_is_held_to_what_was_certified",
    ),
    Fault(
        "a sampling rate read off the data",
        "channels/make.py",
        "if isinstance(scheme, DataDependent):",
        "if False:",
        "channels/test_draws.py::TestSamplesOfRareAndHugeKeys::test_a_rate_read_off_the_data_is_refused",
    ),
    Fault(
        "sampled histograms: kept by the true count",
        "channels/thinned.py",
        "self._kept(tokens[reported])",
        "self._kept(frequencies[reported])",
        "channels/test_draws.py::test_tokens_follow_the_row",
    ),
    Fault(
        "a sample of chosen size: epsilon is spent twice",
        "channels/sized.py",
        "optimal(epsilon - for_total, delta",
        "optimal(epsilon, delta",
        "channels/test_release.py::TestSampleOfChosenSize::test_about_so_many_keys",
    ),
    Fault(
        "sample and threshold: one lower",
        "channels/sample_threshold.py",
        "np.where(sampled >= self.threshold, sampled, 0)",
        "np.where(sampled >= self.threshold - 1, sampled, 0)",
        "channels/test_sample_threshold.py::TestDraws",
    ),
    Fault(
        "sample and threshold: too many are sampled",
        "channels/sample_threshold.py",
        "binomial(frequencies, self.rate, source=source)",
        "binomial(frequencies, min(1.0, 1.25 * self.rate), source=source)",
        "channels/test_sample_threshold.py::TestDraws",
    ),
    Fault(
        "sample and threshold: a promise is not checked",
        "channels/sample_threshold.py",
        "if exact > promised:",
        "if False:",
        "channels/test_sample_threshold.py::TestGuarantee::test_the_promise_and_the_certificate",
    ),
    Fault(
        "sample and threshold: replacement costs no more",
        "channels/sample_threshold.py",
        "else replace(epsilon, rate, threshold)",
        "else add_remove(epsilon, rate, threshold)[0]",
        "channels/test_sample_threshold.py::TestGuarantee::test_the_promise_and_the_certificate",
    ),
    Fault(
        "sample and threshold: one direction",
        "channels/sampled_divergence.py",
        "return max(appearing(slope, rate, threshold), vanishing(slope, rate, threshold))",
        "return vanishing(slope, rate, threshold)",
        "channels/test_sample_threshold.py::TestGuarantee::test_one_client_by_enumeration",
    ),
    Fault(
        "known keys: rows are ignored",
        "channels/known.py",
        "laplace_scale(guarantee.epsilon, max_keys * max_rows)",
        "laplace_scale(guarantee.epsilon, max_keys)",
        "channels/test_known.py",
    ),
    Fault(
        "known keys: Gaussian noise for one key",
        "channels/known.py",
        "count=made.max_keys)",
        "count=1)",
        "channels/test_known.py",
    ),
    Fault(
        "known keys: half the noise is drawn",
        "channels/known.py",
        "add(self.scale, len(counts)",
        "add(self.scale / 2, len(counts)",
        "channels/test_known.py::test_what_is_drawn",
    ),
    Fault(
        "known keys: one noise for all keys",
        "channels/known.py",
        "add(self.scale, len(counts)",
        "add(self.scale, min(1, len(counts))",
        "channels/test_known.py::test_what_is_drawn",
    ),
]

ENGINES = [
    Fault(
        "bounding: one key too many",
        "engines/sql.py",
        "place <= {bounds.max_keys}",
        "place <= {bounds.max_keys + 1}",
        "engines/test_bounding.py::test_a_unit_with_a_thousand_keys",
    ),
    Fault(
        "bounding: no cap on rows",
        "engines/sql.py",
        "least(n, {most})",
        "n",
        "engines/test_bounding.py::test_a_unit_with_a_million_rows_of_one_key",
    ),
    Fault(
        "bounding: DISTINCT is forgotten",
        "engines/sql.py",
        "SELECT DISTINCT u",
        "SELECT u",
        "engines/test_bounding.py",
    ),
    Fault(
        "bounding: the unit is ignored",
        "engines/sql.py",
        "    if bounds.unit is None:",
        "    if True:",
        "engines/test_bounding.py",
    ),
    Fault(
        "bounding: units that are null are counted",
        "engines/embedded.py",
        "if keys.column(0).null_count:",
        "if False:",
        "engines/test_values.py::test_null_units_are_refused_unless_allowed",
    ),
    Fault(
        "other dialects: a lost bound is not noticed",
        "engines/dialects.py",
        "!= _bounding(tree):",
        "is None:",
        "engines/test_dialects.py::test_a_bound_that_is_lost_on_the_way_is_noticed",
    ),
    Fault(
        "one row decides how a key is spelled",
        "engines/columns.py",
        "ELSE {self.sql} + 0::{self.kind} END",
        "ELSE {self.sql} END",
        "engines/test_values.py::test_equal_numbers_are_one_key_and_written_in_one_way",
    ),
    Fault(
        "categories travel with the keys",
        "engines/columns.py",
        'f"CAST({self.sql} AS VARCHAR)" if self.kind in AS_TEXT else self.sql',
        "self.sql",
        "engines/test_values.py::test_categories_that_do_not_occur_stay_behind",
    ),
    Fault(
        "an error quotes data",
        "engines/trouble.py",
        '_named(message, shown)} cannot be read ({kind})',
        '_named(message, shown)} cannot be read ({message})',
        "engines/test_trouble.py",
    ),
    Fault(
        "an error keeps what DuckDB said",
        "engines/embedded.py",
        "failure = KeyboardInterrupt() if interrupted else explained(error, shown)",
        "raise KeyboardInterrupt() if interrupted else explained(error, shown)",
        "engines/test_trouble.py",
    ),
    Fault(
        "others may read temporary files",
        "engines/folder.py",
        "lock = _locked(folder)",
        "lock = (folder.chmod(0o755), _locked(folder))[1]",
        "engines/test_resources.py::test_what_does_not_fit_into_memory_goes_to_disk_and_leaves_nothing",
    ),
    Fault(
        "what a killed process left stays",
        "engines/folder.py",
        "    _sweep(home)",
        "    pass",
        "engines/test_resources.py::test_what_a_killed_process_left_is_removed_by_the_next_count",
    ),
    Fault(
        "true counts are shown",
        "engines/base.py",
        'return "<Counted: true frequencies',
        'return f"<Counted: {self.frequencies} true frequencies',
        "engines/test_trouble.py::test_the_counts_are_not_shown_by_accident",
    ),
]

JOBS = [
    Fault(
        "several keys share as if they were one",
        "jobs/plan.py",
        "share = _share(keys, epsilon, delta)",
        "share = _share(1, epsilon, delta)",
        "jobs/test_release.py::TestMeasuredRates::test_a_unit_with_five_keys_of_its_own",
    ),
    Fault(
        "Gaussian noise for one key of several",
        "jobs/plan.py",
        "other = gaussian(epsilon, delta, keys, rows",
        "other = gaussian(epsilon, delta, 1, rows",
        "jobs/test_release.py::TestMeasuredRates jobs/test_release.py::TestPreview",
    ),
    Fault(
        "known keys: noise for one key of several",
        "jobs/plan.py",
        "made = known_keys(epsilon, delta, keys, rows",
        "made = known_keys(epsilon, delta, 1, rows",
        "jobs/test_known.py",
    ),
    Fault(
        "a sample of chosen size: all of epsilon twice",
        "jobs/table.py",
        "sampled = self._plan(epsilon * (1 - SHARE_FOR_SIZE)",
        "sampled = self._plan(epsilon",
        "jobs/test_release.py::test_a_sample_of_chosen_size",
    ),
    Fault(
        "a release is not charged",
        "jobs/table.py",
        "ledger.spend(plan.guarantee, note)",
        "pass",
        "jobs/test_release.py::TestLedger::test_a_release_is_charged",
    ),
    Fault(
        "the size is drawn before the spend",
        "jobs/table.py",
        """    if ledger is not None:
        ledger.spend(plan.guarantee, note)
    if sample_size is not None:
        plan = job.sized(plan, counted.frequencies, sample_size, source)
""",
        """    if sample_size is not None:
        plan = job.sized(plan, counted.frequencies, sample_size, source)
    if ledger is not None:
        ledger.spend(plan.guarantee, note)
""",
        "jobs/test_release.py::TestLedger::test_the_spend_is_written_before_anything_is_drawn",
    ),
    Fault(
        "command line: the ledger is left out",
        "cli/table.py",
        "ledger=book,",
        "ledger=None,",
        "cli/test_commands.py::test_a_ledger_from_creation_to_exhaustion",
    ),
    Fault(
        "command line: others may read the state",
        "cli/stream.py",
        "os.fsync(file.fileno())",
        "os.fchmod(file.fileno(), 0o644)",
        "cli/test_stream.py::test_a_state_is_kept_and_gone_on_with",
    ),
    Fault(
        "command line: a state is merged with itself",
        "cli/stream.py",
        "if len(set(paths)) < len(paths):",
        "if False:",
        "cli/test_stream.py::test_mistakes_are_answered_with_the_fix",
    ),
]

OUTPUT = [
    Fault(
        "a release forgets that it is unsafe",
        "output/draw.py",
        "not source.publishable)",
        "False)",
        "channels/test_release.py::test_a_seeded_release_says_that_it_is_unsafe",
    ),
    Fault(
        "a saved release forgets that it is unsafe",
        "output/records.py",
        '"unsafe_to_publish": self.unsafe_to_publish,',
        '"unsafe_to_publish": False,',
        "output/test_files.py::test_keys_only_and_unsafe_releases_stay_so",
    ),
    Fault(
        "keys come in the order of the data",
        "output/draw.py",
        'order = pc.sort_indices(fields, [(name, "ascending") for name in fields.column_names])',
        "order = pa.array(np.arange(len(keys)))",
        "channels/test_release.py",
    ),
    Fault(
        "an empty release tells the type of the keys",
        "output/draw.py",
        "keys = pa.array([], pa.string())",
        "pass",
        "channels/test_release.py sketches/test_releases.py::test_an_empty_release_does_not_tell_an_empty_stream_from_one_item",
    ),
    Fault(
        "keys only: tokens come along",
        "output/draw.py",
        "kept = None if keys_only else tokens",
        "kept = tokens",
        "channels/test_release.py::test_keys_only",
    ),
    Fault(
        "a certificate is read and not checked",
        "output/records.py",
        "if mechanism.certify() != certificate:",
        "if False:",
        "output/test_files.py",
    ),
]

SKETCHES = [
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
        "sketches/test_noisy.py",
    ),
    Fault(
        "Misra-Gries: the true loss is told",
        "sketches/noisy.py",
        "decrements=decrements - shared",
        "decrements=decrements",
        "sketches/test_noisy.py",
    ),
    Fault(
        "Misra-Gries: one odd key instead of two",
        "sketches/noisy.py",
        "{1: 1, 0: 1}",
        "{0: 1}",
        "sketches/test_noisy.py::test_no_output_tells_neighbouring_streams_apart"
        " sketches/test_noisy.py::test_thresholds",
    ),
    Fault(
        "Misra-Gries: a group costs the sum of deltas",
        "sketches/thresholds.py",
        "math.expm1(epsilon) / math.expm1(epsilon / steps)",
        "steps",
        "sketches/test_noisy.py::test_a_unit_of_several_items_is_paid_for_by_its_steps",
    ),
    Fault(
        "Misra-Gries: several items of a unit cost as one",
        "sketches/releasing.py",
        "sketch.counters, items_per_unit, unit",
        "sketch.counters, 1, unit",
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
        """    certificate = paid(mechanism, terms)
    made, tokens = mechanism.draw(counters, lost, source)
""",
        """    made, tokens = mechanism.draw(counters, lost, source)
    certificate = paid(mechanism, terms)
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
        "sketches/test_misra_gries.py::test_a_short_stream_by_hand sketches/test_misra_gries.py::test_all_short_streams",
    ),
    Fault(
        "users: an item twice counts twice",
        "sketches/compiled/users.py",
        "if seen[code] == user:",
        "if False:",
        "sketches/test_users.py::test_what_one_user_says_twice_counts_once_and_nulls_do_not_count",
    ),
    Fault(
        "users: counters are lowered until they fit",
        "sketches/compiled/users.py",
        "if held > counters:",
        "while held > counters:",
        "sketches/test_users.py::test_one_user_more_changes_each_counter_by_at_most_one_and_all_in_one_direction",
    ),
    Fault(
        "one-sided: noise for one counter",
        "sketches/one_sided.py",
        "gaussian(epsilon, delta, counters + 1, unit=unit)",
        "gaussian(epsilon, delta, 1, unit=unit)",
        "sketches/test_users.py::test_a_user_with_keys_of_its_own_shows_at_most_with_delta"
        " sketches/test_users.py::test_the_noise_grows_with_the_root_of_the_counters_and_not_with_the_sets",
    ),
    Fault(
        "one-sided: the true loss is told",
        "sketches/one_sided.py",
        "lost=int(self.channel.likeliest(drawn[-1:])[0]) - _SURE",
        "lost=lost",
        "sketches/test_users.py",
    ),
    Fault(
        "sums: half of the sensitivity",
        "sketches/summed.py",
        "laplace_scale(guarantee.epsilon, (2 * counters + 2) * items_per_unit)",
        "laplace_scale(guarantee.epsilon, (counters + 1) * items_per_unit)",
        "sketches/test_summed.py::test_delta_by_enumeration_of_all_outputs sketches/test_summed.py::test_thresholds",
    ),
    Fault(
        "sums: the true number of items is told",
        "sketches/summed.py",
        "counted = items + int(discrete_laplace(self.scale, 1, source=source)[0])",
        "counted = items",
        "sketches/test_summed.py sketches/test_releases.py",
    ),
    Fault(
        "sums: a lower threshold",
        "sketches/summed.py",
        "np.where(noisy >= self.least, noisy, 0)",
        "np.where(noisy >= self.least - self.counters, noisy, 0)",
        "sketches/test_summed.py::test_the_rate_of_keys_that_only_one_sum_holds",
    ),
    Fault(
        "sums: one odd key instead of k",
        "sketches/summed.py",
        "self._tail(least - k - 2) + (k - 1) * self._tail(least - 1)",
        "self._tail(least - k - 2)",
        "sketches/test_summed.py",
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
        "sketches/universe.py",
        "np.lexsort((found, -every_token))",
        'np.argsort(-every_token, kind="stable")',
        "sketches/test_releases.py::TestUniverse::test_of_equal_tokens_the_public_order_decides",
    ),
    Fault(
        "merged: more than k counters",
        "sketches/merged.py",
        'whole["key"].combine_chunks(), values - over)',
        'whole["key"].combine_chunks(), values)',
        "sketches/test_releases.py::TestMerged",
    ),
]

FEDERATED = [
    Fault(
        "clients: the coin is always heads",
        "federated/histogram.py",
        "if not coins(1, self.plan.rate, source=source)[0] or not counts:",
        "if not counts:",
        "federated/test_histogram.py::TestClients::test_the_rate_of_one_client",
    ),
    Fault(
        "clients: a batch sends too much",
        "federated/histogram.py",
        "coins(len(column), self.plan.rate",
        "coins(len(column), min(1.0, 1.25 * self.plan.rate)",
        "federated/test_histogram.py::test_every_path_has_the_distribution_of_the_coins",
    ),
    Fault(
        "tally: nonces are not checked",
        "federated/tally.py",
        "if report.nonce in self._seen:",
        "if False:",
        "federated/test_histogram.py::TestHostileClients::test_repeated_reports_count_once",
    ),
    Fault(
        "tally: a second release",
        "federated/tally.py",
        "self._open = False",
        "pass",
        "federated/test_histogram.py::TestHostileClients::test_one_release",
    ),
    Fault(
        "tally: the ledger is not charged",
        "federated/tally.py",
        "charged(ledger).spend(self._plan.guarantee, note)",
        "pass",
        "federated/test_histogram.py::TestHostileClients::test_the_ledger_comes_first",
    ),
    Fault(
        "plan: made-up reports are ignored",
        "federated/plan.py",
        "checked_threshold(threshold) - hostile",
        "checked_threshold(threshold)",
        "federated/test_plan.py::test_a_plan_against_made_up_reports",
    ),
    Fault(
        "histogram: made-up reports are ignored",
        "federated/histogram.py",
        "max(self.plan.threshold - known, 1)",
        "self.plan.threshold",
        "federated/test_histogram.py::TestHostileClients::test_the_guarantee_against_made_up_reports",
    ),
    Fault(
        "invitations: too large samples cost nothing",
        "federated/invitations.py",
        "(1 + math.exp(promise.epsilon)) * self.overflow",
        "self.overflow",
        "federated/test_plan.py::TestInvitations",
    ),
    Fault(
        "a table of clients: the client is ignored",
        "federated/table.py",
        "unit=client,",
        "unit=None,",
        "federated/test_histogram.py::test_a_table_with_clients",
    ),
    Fault(
        "a table of clients: the ledger is not charged",
        "federated/table.py",
        "ledger.spend(plan.guarantee, note)",
        "pass",
        "federated/test_histogram.py",
    ),
    Fault(
        "trie: a threshold one lower",
        "federated/trie.py",
        'counted["reports"], self.plan.threshold)',
        'counted["reports"], self.plan.threshold - 1)',
        "federated/test_trie.py::TestPrivacy::test_rare_strings_are_released_as_often_as_they_may",
    ),
    Fault(
        "trie: a seeded run is not marked",
        "federated/trie.py",
        "keys, tokens, source=self._source)",
        "keys, tokens, source=resolve(None))",
        "federated/test_trie.py::TestPaths::test_a_seeded_source_is_marked_and_repeatable",
    ),
    Fault(
        "trie: the coin is always heads",
        "federated/trie_question.py",
        "if not coins(1, question.coin, source=source)[0] or not",
        "if not",
        "federated/test_trie.py::TestPaths::test_clients_one_by_one_and_all_at_once_tell_the_same",
    ),
    Fault(
        "trie: in one process a client answers at all levels",
        "federated/trie_simulation.py",
        "drawn == question.level if plan.way",
        "drawn > 0 if plan.way",
        "federated/test_trie.py::TestPaths::test_clients_one_by_one_and_all_at_once_tell_the_same",
    ),
    Fault(
        "levels: a client answers at two",
        "federated/level_server.py",
        "hint=hint) == question.level",
        "hint=hint) in (question.level, question.level + 1)",
        "federated/test_trie.py::TestHostile::test_a_client_needs_its_level_in_cohorts",
    ),
    Fault(
        "levels: nonces are not checked",
        "federated/level_server.py",
        "return not seen",
        "return True",
        "federated/test_trie.py::TestHostile::test_a_message_that_comes_twice_counts_once",
    ),
    Fault(
        "levels: the ledger is not charged",
        "federated/level_server.py",
        "charged(ledger).spend(self.guarantee, note)",
        "pass",
        "federated/test_trie.py::TestPaths::test_the_ledger_is_charged_before_the_first_question",
    ),
    Fault(
        "levels: asked a second time",
        "federated/level_server.py",
        'if self._state != "new":',
        "if False:",
        "federated/test_trie.py::TestHostile::test_things_out_of_order",
    ),
    Fault(
        "levels: many rounds cost as one",
        "federated/level_plans.py",
        "rounds_delta(epsilon, coin, threshold, levels, neighbours)",
        "rounds_delta(epsilon, coin, threshold, 1, neighbours)",
        "federated/test_trie.py::TestPlans",
    ),
    Fault(
        "rounds: one direction",
        "federated/composed_rounds.py",
        "else [(more,), (less,)]",
        "else [(less,)]",
        "federated/test_trie.py::TestPlans",
    ),
    Fault(
        "rounds: what is lost is forgotten",
        "federated/composed_rounds.py",
        "lost=finite.lost + lost * heavier",
        "lost=finite.lost",
        "federated/test_trie.py::TestPlans",
    ),
    Fault(
        "quantiles: no threshold",
        "federated/quantile_search.py",
        "count if count >= plan.threshold else 0 for",
        "count for",
        "federated/test_quantiles.py::TestSearch",
    ),
    Fault(
        "quantiles: the coin is always heads",
        "federated/quantile_search.py",
        "if not coins(1, question.coin, source=source)[0]:",
        "if False:",
        "federated/test_quantiles.py::TestSearch",
    ),
    Fault(
        "quantiles: in one process the coin is always heads",
        "federated/quantile_search.py",
        "asked[coins(len(asked), self.plan.coin, source=source)]",
        "asked",
        "federated/test_quantiles.py::TestSearch",
    ),
    Fault(
        "sampled Laplace: half the noise",
        "federated/sampled_laplace.py",
        "discrete_laplace(self.scale, len(sampled)",
        "discrete_laplace(self.scale / 2, len(sampled)",
        "federated/test_baselines.py::TestSampledLaplace",
    ),
    Fault(
        "Hadamard response: twice epsilon",
        "federated/hadamard.py",
        "own = arb(self.guarantee.epsilon).exp()",
        "own = arb(2 * self.guarantee.epsilon).exp()",
        "federated/test_baselines.py::TestHadamardResponse",
    ),
    Fault(
        "shuffled noise: half the coins",
        "federated/bernoulli_noise.py",
        "self.clients), self.coin,",
        "self.clients), self.coin / 2,",
        "federated/test_baselines.py::TestBernoulliNoise",
    ),
]

FAULTS = [*RANDOMNESS, *KERNEL, *COMPOSITION, *LEDGER, *CHANNELS, *ENGINES, *JOBS, *OUTPUT, *SKETCHES, *FEDERATED]
