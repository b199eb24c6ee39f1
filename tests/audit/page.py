"""Write the table of measured power into docs/background/audit.md, from docs/background/audit_power.csv."""

import csv
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/background/audit.md"
TABLE = PAGE.with_name("audit_power.csv")
FIRST, LAST = "<!-- power -->\n", "<!-- end of power -->\n"


def rows():
    with TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def section(found):
    """Return the text of the section: totals by part, the faults that were caught, and the smallest one by rates."""
    caught = [row for row in found if row["caught"] == "yes"]
    measured = [float(row["ratio"]) for row in caught if row["ratio"].replace(".", "").isdigit()]
    totals, hits = Counter(row["group"] for row in found), Counter(row["group"] for row in caught)
    lines = ["| part (`tests/faults`) | faults run | caught |", "|---|---|---|"]
    lines += [f"| {group} | {totals[group]} | {hits[group]} |" for group in sorted(totals)]
    lines += [
        "",
        f"{len(caught)} of {len(found)} faults were caught by the short audits alone. The others either change nothing "
        "that is published (intervals, certificates, charges, files that are read), or change it by less than the runs "
        "show; the tests that catch these are named beside them in `tests/faults`. Faults that are not in "
        "`docs/background/audit_power.csv` were not run.",
        "",
    ]
    if measured:
        lines += [f"The smallest fault that was found by its rates has a lower bound of {min(measured):g} claims.", ""]
    lines += ["| fault | found by the audit of | epsilon shown, in claims |", "|---|---|---|"]
    for row in sorted(caught, key=lambda row: (row["group"], row["fault"])):
        ratio = row["ratio"] if row["ratio"].replace(".", "").isdigit() else f"raises {row['ratio']}"
        lines.append(f"| {row['fault']} | {row['audit']} | {ratio} |")
    return "\n".join(lines) + "\n"


def page():
    """Return the page with the section of the stored table."""
    text = PAGE.read_text(encoding="utf-8")
    return text[: text.index(FIRST)] + FIRST + section(rows()) + text[text.index(LAST) :]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
