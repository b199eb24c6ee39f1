"""Rewrite what the golden tests store, and print what changed.

python tests/golden/update.py                 # digests of all publications
python tests/golden/update.py --record-only   # digests of records; refused where a table or a number changed
python tests/golden/update.py --api           # the list of public names
"""

import argparse
import difflib
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden import digests, public_names
from golden.cases import CASES


def main() -> int:
    """Run the command; the exit code is 1 if something was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--record-only", action="store_true")
    group.add_argument("--api", action="store_true")
    options = parser.parse_args()
    return update_names() if options.api else update_digests(options.record_only)


def update_names() -> int:
    """Rewrite the list of public names."""
    before, after = public_names.stored(), public_names.listing()
    public_names.STORED.write_text(after)
    print(
        "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "before", "after", n=0)), end=""
    )
    return 0


def update_digests(record_only: bool) -> int:
    """Rewrite the stored digests."""
    warnings.simplefilter("ignore")
    before, after = digests.stored(), {name: digests.describe(name) for name in CASES}
    refused = 0
    for name in sorted(before | after):
        found = digests.changes(before.get(name), after.get(name))
        refused += any(not change.startswith("record ") for change in found)
        print("".join(f"{name}: {change}\n" for change in found), end="")
    if record_only and refused:
        print(f"{refused} cases differ in more than the record. Nothing was written.")
        return 1
    digests.store(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
