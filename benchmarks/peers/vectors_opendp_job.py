"""OpenDP's ALP: a queryable projection of a sparse vector, built from a dictionary and asked one key at a time.

It is told the true total of the values. Its projection is one array of bits; their number, which is not told, is the
next power of two above size_factor * total * epsilon / alpha. Print JSON: seconds to build, seconds of a look-up, bits,
peak MiB, and the mean errors of entries that are there and of those that are not.
"""

import json
import math
import sys

import numpy as np
import opendp.prelude as dp
from measure import fastest, peak

MOST = 10_000

dp.enable_features("contrib")


def main() -> None:
    folder, epsilon, alpha, factor = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rounds, seconds = int(sys.argv[5]), float(sys.argv[6])
    indices, values = (np.load(f"{folder}/{name}.npy") for name in ("indices", "values"))
    absent = np.load(f"{folder}/absent.npy")[:MOST]
    entries = dict(zip(indices.tolist(), values.tolist(), strict=True))
    total = int(values.sum())
    projection = dp.m.make_alp_queryable(
        dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="u32")),
        dp.l01inf_distance(dp.absolute_distance(T="u32")),
        scale=epsilon,
        total_limit=total,
        value_limit=int(values.max()),
        size_factor=factor,
        alpha=alpha,
    )
    built, query = fastest(lambda: projection(entries), rounds, seconds)
    some = np.random.default_rng(2).choice(len(indices), min(MOST, len(indices)), replace=False)
    asked = [*indices[some].tolist(), *absent.tolist()]
    seconds, found = fastest(lambda: np.array([query(index) for index in asked]), rounds, seconds)
    bits = 2 ** math.ceil(math.log2(factor * total * epsilon / alpha))
    errors = np.abs(found - np.append(values[some], np.zeros(len(absent))))
    present, missing = errors[: len(some)].mean(), errors[len(some) :].mean()
    print(json.dumps([built, seconds / len(asked), bits, peak("self") / 1024, float(present), float(missing)]))


main()
