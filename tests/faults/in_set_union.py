"""Faults of selectors for set union: weights, greedy choices, policies and rounds."""

from fault import Fault

FAULTS = [
    Fault(
        "a Gaussian test within the margin is left to floats",
        "randomness/coins.py",
        "np.flatnonzero(np.abs(uniform - chance) <= margin)",
        "()",
        "discovery/test_weighted_gaussian.py::test_gaussian_tests_that_floats_cannot_decide_are_decided_by_balls",
    ),
    Fault(
        "new keys that show are forgotten",
        "discovery/gaussian_exposure.py",
        "-np.expm1(-lost) + np.exp(-lost)",
        "np.exp(-lost)",
        "discovery/test_weighted_gaussian.py::test_how_many_units_the_exact_calibration_needs",
    ),
    Fault(
        "the wrong ends of intervals",
        "discovery/gaussian_exposure.py",
        "exposure * (1 - u[:-1]), u[1:]",
        "exposure * (1 - u[1:]), u[:-1] + 1e-9",
        "discovery/test_weighted_gaussian.py::test_the_certificate_looks_at_every_size_and_every_number_of_new_keys",
    ),
    Fault(
        "keys that nobody holds are tested",
        "discovery/weighted_gaussian.py",
        "held = np.flatnonzero(weights)",
        "held = np.arange(len(weights))",
        "discovery/test_weighted_gaussian.py::test_it_selects_what_many_hold_and_nothing_that_nobody_holds",
    ),
    Fault(
        "a greedy unit counts in all its keys",
        "discovery/compiled/policy_loops.py",
        "                counts[held[i]] += 1\n                break",
        "                counts[held[i]] += 1",
        "discovery/test_greedy.py::test_one_unit_changes_one_count_by_one",
    ),
    Fault(
        "a step of l2 descent is too long",
        "discovery/compiled/policy_loops.py",
        "share = 1 / math.sqrt(squares)",
        "share = 1.001 / math.sqrt(squares)",
        "discovery/test_policies.py::test_one_unit_moves_the_sums_by_one_at_most",
    ),
    Fault(
        "rounding of sums is forgotten",
        "discovery/policies.py",
        "* 2.0**-53 * 1.001",
        "* 2.0**-59 * 1.001",
        "discovery/test_policies.py::test_the_threshold_is_that_of_the_weighted_mechanism",
    ),
    Fault(
        "a cutoff between whole weights",
        "discovery/policies.py",
        "math.ceil((self.steps + _ROOM * math.sqrt(2) * self.scale) / STEPS) * STEPS",
        "math.ceil(self.steps + _ROOM * math.sqrt(2) * self.scale)",
        "discovery/test_policies.py::test_a_whole_cutoff_lets_one_unit_raise_one_key",
    ),
    Fault(
        "a unit alone is taken for no weight",
        "discovery/policies.py",
        "(-rate * (steps - STEPS)).exp()",
        "(-rate * steps).exp()",
        "discovery/test_policies.py::test_a_unit_alone_shows_its_first_key_with_probability_delta",
    ),
    Fault(
        "only the first round is paid for",
        "discovery/repeated_rounds.py",
        "return *noise, *(",
        "return noise[0], *(",
        "discovery/test_repeated_rounds.py::test_budgets_grow_and_add_up",
    ),
]
