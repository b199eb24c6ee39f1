"""The scripts in examples/ run, here at a small size."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_private_sample(capsys):
    """Sums within eight standard errors of the truth: by chance less than once in 10^12 runs, were they normal."""
    main = runpy.run_path(str(EXAMPLES / "private_sample.py"))["main"]
    found = main(100_000, 300, 0.05)
    for name in ("sample, not private", "private sample"):
        total = found[name]
        assert total - total.bias == pytest.approx(found["truth"], abs=8 * total.standard_error)
    assert "95 %" in capsys.readouterr().out


def test_missing_mass(capsys):
    """What is missed lies between the bounds of the paper, and the alternatives miss less than Algorithm 1."""
    main = runpy.run_path(str(EXAMPLES / "missing_mass.py"))["main"]
    found = main(8_000, 5)
    missed = found["Algorithm 1, Theorem 3.2"]
    assert found["missing mass of any mechanism at least"] < missed < found["missing mass at most"]
    assert found["policy Gaussian"] < missed and found["repeated rounds"] < 2 * missed
    assert found["missed users, not private"] <= found["missed users, known domain"] < 8_000
    assert (
        found["top-k missing mass, Algorithm 3"] < 0.3 and "a key is found half of the time" in capsys.readouterr().out
    )
