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
