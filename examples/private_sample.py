"""A private sample of about 10,000 keys of a log of 100 million rows; sums from it, and from the true sample.

    python examples/private_sample.py                     # 100M rows, 500,000 keys: about 20 s of one core
    python examples/private_sample.py 1_000_000 20_000 0.001

The log is synthetic (Zipf's law) and comes in parts that share keys, as daily files do. Each part is counted; the
counts are added up and divided among workers by key; each worker samples its keys; the samples are merged and released.
The sampling rate is a public number here. For one that follows from the data, see `dpsieve.channels.release_sample`.
"""

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import dpsieve as ds
from dpsieve.sampling import new_salt

WORKERS = 4
RARE = 15  # optimal(1.0, 1e-8) seldom reports rarer keys


def parts_of_log(rows: int, keys: int) -> Iterator[NDArray[np.int64]]:
    """Yield the key of each row, a million rows at a time."""
    random = np.random.default_rng(7)
    ends = np.cumsum(np.arange(1, keys + 1) ** -1.1)
    for start in range(0, rows, 10**6):
        drawn = random.random(min(10**6, rows - start)) * ends[-1]
        yield np.searchsorted(ends, drawn).astype(np.int64)


def main(rows: int = 100_000_000, keys: int = 500_000, rate: float = 0.00036) -> dict[str, ds.EstimatedSum | float]:
    """Sample, merge, release and estimate; return the sums that are printed."""
    counts = np.zeros(keys, np.int64)
    for part in parts_of_log(rows, keys):
        counts += np.bincount(part, minlength=keys)

    scheme, salt, saved = ds.ppswor(rate), new_salt(), []
    for worker in range(WORKERS):  # each has keys of its own, and sends bytes
        own = np.arange(worker, keys, WORKERS)
        saved.append(ds.Sample.of(own, counts[own], scheme, salt=salt).to_bytes())
    sample = ds.Sample.from_bytes(saved[0])
    for data in saved[1:]:
        sample = sample.merge(ds.Sample.from_bytes(data))

    release = ds.channels.optimal(1.0, 1e-8, scheme).release(sample)
    print(f"{release}\nsampled {len(sample):,} keys, released {len(release):,} of them")

    found: dict[str, ds.EstimatedSum | float] = {
        "truth": float(counts[::3].sum()),
        "sample, not private": sample.estimate(where=lambda column: column.to_numpy() % 3 == 0),
        "private sample": release.estimate(where=lambda column: column.to_numpy() % 3 == 0),
    }
    common = counts[::3][counts[::3] >= RARE].sum()
    print(f"\nrows of every third key\n{'truth':<20} {found['truth']:>14,.0f}   {common:,} in keys of {RARE} or more")
    for name in ("sample, not private", "private sample"):
        total = found[name]
        assert isinstance(total, ds.EstimatedSum)
        low, high = total.interval(0.95)
        print(f"{name:<20} {total:>14,.0f}   95 %: {low:,.0f} to {high:,.0f}")
    print(f"Keys of fewer than {RARE} rows hardly ever show in the private sample, and their rows are not in its sum.")
    return found


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]), *map(float, sys.argv[3:]))
