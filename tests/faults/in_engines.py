"""Faults on the way of a table: bounding, jobs, the command line, and the release."""

from fault import Fault

FAULTS = [
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
        "engines/test_bounding.py::test_a_unit_with_a_thousand_keys",
    ),
    Fault(
        "bounding: the unit is ignored",
        "engines/sql.py",
        "    if bounds.unit is None:",
        "    if True:",
        "engines/test_bounding.py::test_without_a_tight_bound_it_is_the_reference",
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
        "return f'{self.sql} COLLATE \"C\"' if self.collated else self.sql",
        "return self.sql",
        "engines/test_values.py::test_spelling_does_not_depend_on_a_collation",
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
        "data cannot be read ({kind})",
        "data cannot be read ({message})",
        "engines/test_trouble.py::test_a_relation_that_fails",
    ),
    Fault(
        "an error keeps what DuckDB said",
        "engines/embedded.py",
        "failure = KeyboardInterrupt() if interrupted else explained(error, shown)",
        "raise KeyboardInterrupt() if interrupted else explained(error, shown)",
        "engines/test_trouble.py::test_a_bad_row_of_csv",
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
        "jobs/test_release.py::TestMeasuredRates::test_a_unit_with_five_keys_of_its_own",
    ),
    Fault(
        "known keys: noise for one key of several",
        "jobs/plan.py",
        "made = known_keys(epsilon, delta, keys, rows",
        "made = known_keys(epsilon, delta, 1, rows",
        "jobs/test_known.py::test_one_unit_more_or_less_as_measured",
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
        "cli/test_stream.py::test_states_are_merged",
    ),
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
        "channels/test_release.py::test_a_release_in_four_lines",
    ),
    Fault(
        "an empty release tells the type of the keys",
        "output/draw.py",
        "keys = pa.array([], pa.string())",
        "pass",
        "sketches/test_releases.py::test_an_empty_release_does_not_tell_an_empty_stream_from_one_item",
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
        "output/test_files.py::test_a_certificate_is_checked_anew",
    ),
]
