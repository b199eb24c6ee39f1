"""Audit mechanisms of dpsieve with the property testers of DP-Auditorium, as an outside opinion.

DP-Auditorium is in no package index: clone https://github.com/google/differential-privacy and install, in an
environment of its own, `tensorflow-cpu scipy absl-py etils`. Then, with the folder python/dp_auditorium of the clone in
PYTHONPATH for the second command:

    .venv/bin/python benchmarks/outside_audit.py draw samples
    PYTHONPATH=... python benchmarks/outside_audit.py test samples

Outputs are drawn by the paths of tests/audit/paths.py: as they are, and with half of the noise or twice the delta. Two
testers estimate from them, with a failure probability of 1e-3, a lower bound on the delta that the claimed epsilon
needs: a histogram of the first number (Gilbert and McMillan 2018), and a classifier of all numbers (the hockey-stick
divergence). The claim is rejected if a bound is above the claimed delta. docs/background/dp_auditorium.csv has results.
"""

import csv
import sys
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/background/dp_auditorium.csv"
RUNS, FAILURE, BINS = 20_000, 1e-3, 40
PATHS = (
    "channel, optimal, lone key", "channel, optimal, threshold", "channel, simple, lone key",
    "channel, gaussian, five keys", "channel, report_then_count, five keys", "channel, known_keys",
    "channel, known_keys, gaussian", "keys per unit", "rest", "private total",
)  # fmt: skip
SIZES = {"as it is": {}, "half of the noise": {"noise": 0.5}, "twice the delta": {"threshold": 0.5}}


def draw(folder: Path) -> None:
    """Store numbers of outputs on both inputs, per path and planted size."""
    sys.path.insert(0, str(ROOT / "tests/audit"))
    from paths import AUDITS  # type: ignore[import-not-found]

    import dpsieve as ds

    folder.mkdir(exist_ok=True)
    for name in PATHS:
        for size, options in SIZES.items():
            path = AUDITS[name]
            if "threshold" in options and not path.delta:
                continue
            inputs, source = path.inputs(**options), ds.testing.insecure_source(5)
            both = inputs.data, inputs.neighbour
            runs = [[np.ravel(inputs.run(data, source)) for _ in range(RUNS)] for data in both]
            width = max(len(row) for side in runs for row in side)
            sides = [np.array([[*row, *[0.0] * (width - len(row))] for row in side], np.float64) for side in runs]
            file = folder / f"{name.replace(', ', '-').replace(' ', '_')}-{size.replace(' ', '_')}.npz"
            np.savez(file, name=name, size=size, epsilon=path.epsilon, delta=path.delta, data=sides[0], other=sides[1])
            print(file, flush=True)


def test(folder: Path) -> None:
    """Test all stored outputs in both directions, and store the bounds."""
    rows = []
    for file in sorted(folder.glob("*.npz")):
        stored = np.load(file)
        epsilon, delta, one, two = float(stored["epsilon"]), float(stored["delta"]), stored["data"], stored["other"]
        found = [
            max(tester(one, two, epsilon, delta), tester(two, one, epsilon, delta)) for tester in (by_bins, by_model)
        ]
        rejected = "yes" if max(found) > delta else "no"
        rows.append([str(stored["name"]), str(stored["size"]), epsilon, delta, *(f"{d:.3f}" for d in found), rejected])
        print(*rows[-1], flush=True)
    with TABLE.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("path", "planted", "epsilon", "delta", "by histogram", "by classifier", "rejected"))
        writer.writerows(rows)


def by_bins(first: np.ndarray, second: np.ndarray, epsilon: float, delta: float) -> float:
    """Return a lower bound of delta by the histogram of the number whose means differ most."""
    from dp_auditorium.configs import (  # type: ignore[import-not-found]
        privacy_property,
        property_tester_config,
    )
    from dp_auditorium.testers import histogram_tester  # type: ignore[import-not-found]

    place = int(np.argmax(np.abs(first.mean(0) - second.mean(0)) / (first.std(0) + second.std(0) + 1e-9)))
    numbers = [first[:, place], second[:, place]]
    low, high = np.quantile(np.concatenate(numbers), [0.001, 0.999])
    config = property_tester_config.HistogramPropertyTesterConfig(
        False, BINS, float(low), float(max(high, low + 1e-9)), privacy_property.ApproximateDp(epsilon, delta)
    )
    return float(histogram_tester.HistogramTester(config).estimate_lower_bound(*numbers, FAILURE))


def by_model(first: np.ndarray, second: np.ndarray, epsilon: float, delta: float) -> float:
    """Return a lower bound of delta by the default classifier of the hockey-stick tester."""
    from dp_auditorium.configs import (
        privacy_property,
        property_tester_config,
    )
    from dp_auditorium.testers import hockey_stick_tester

    scale = np.concatenate([first, second]).std(0) + 1e-9
    middle = np.concatenate([first, second]).mean(0)
    config = property_tester_config.HockeyStickPropertyTesterConfig(
        hockey_stick_tester.make_default_hs_training_config(), privacy_property.ApproximateDp(epsilon, delta)
    )
    tester = hockey_stick_tester.HockeyStickPropertyTester(config, hockey_stick_tester.make_default_hs_base_model())
    sides = [((side - middle) / scale).astype(np.float32) for side in (first, second)]
    return float(tester.estimate_lower_bound(*sides, FAILURE))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"draw": draw, "test": test}[sys.argv[1]](Path(sys.argv[2]))
