"""Write the measured power into docs/background/audit.md, from docs/background/audit_power.csv."""

import csv
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/background/audit.md"
TABLE = PAGE.with_name("audit_power.csv")
OUTCOMES = ("contradicted", "refused", "missed", "out of time")
FIRST, LAST = "<!-- power -->\n", "<!-- end of power -->\n"


def rows():
    with TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def section(found):
    """Return the text of the section: outcomes by part, the smallest fault that was found, and all that were."""
    counts = Counter((row["group"], row["outcome"]) for row in found)
    totals = Counter(row["outcome"] for row in found)
    lines = [f"| part (`tests/faults`) | faults run | {' | '.join(OUTCOMES)} |", f"|{'---|' * (2 + len(OUTCOMES))}"]
    for group in sorted({row["group"] for row in found}):
        cells = [counts[group, outcome] for outcome in OUTCOMES]
        lines.append(f"| {group} | {sum(cells)} | {' | '.join(map(str, cells))} |")
    contradicted = sorted(
        (row for row in found if row["outcome"] == "contradicted"), key=lambda row: float(row["ratio"])
    )
    lines += [
        "",
        f"Of {len(found)} faults, {totals['contradicted']} were contradicted by the outputs. "
        f"{totals['refused']} never led to an output: the library itself refused, by its certificate or by a check of "
        "arguments, which shows nothing about the audit. "
        f"{totals['missed']} were missed by the short audits. Missed faults were not sorted into those that leave "
        "these outputs as they are (intervals, certificates, charges, files that are read, paths without an audit) "
        "and those that change them by less than the runs show; for each, `tests/faults` names a test that notices it. "
        "Faults that are not in `docs/background/audit_power.csv` were not run.",
        "",
    ]
    if contradicted:
        least = contradicted[0]["ratio"]
        lines += [f"The smallest fault that was found has a lower bound of {least} times the claimed epsilon.", ""]
        lines += ["| fault | found by the audit of | epsilon shown, in claims |", "|---|---|---|"]
    lines += [f"| {row['fault']} | {row['audit']} | {row['ratio']} |" for row in contradicted]
    return "\n".join(lines) + "\n"


def page():
    """Return the page with the section of the stored table."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(FIRST)] + FIRST + section(rows()) + text[text.index(LAST) :]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
