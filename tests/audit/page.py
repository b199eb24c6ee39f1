"""Write the measured power, and what DP-Auditorium found, into docs/background/audit.md, from tables beside it."""

import csv
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/background/audit.md"
TABLE, GRADES = PAGE.with_name("audit_power.csv"), PAGE.with_name("audit_grades.csv")
LONG = PAGE.with_name("audit_paths.csv")
OUTSIDE = PAGE.with_name("dp_auditorium.csv")
OUTCOMES = ("contradicted", "refused", "unchanged", "missed", "not reached", "out of time")


def rows():
    return read(TABLE)


def grades():
    return read(GRADES)


def long_audits():
    return read(LONG)


def read(table):
    if not table.exists():
        return []
    with table.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def section(found, graded, long):
    """Return the text of the section: faults of a known size, outcomes by part, and the faults that were found."""
    lines = [
        "**Paths.** *Refuted* is the largest share s such that the runs refute the claim (s epsilon, s delta), by the "
        "short audit and by the long one, with ten times the runs or as stated; with 0.00, so few runs show nothing. A "
        "path that keeps its promise stays below 1. Layouts and refusals are replayed on equal words instead, and must "
        "not differ at all.",
        "",
        "**Faults of a known size.** The noise is multiplied by a factor, or delta is divided by it, and the claim "
        "stays. The table has the largest of 0.9, 0.7, 0.5 and 0.3 that the short audit finds; an empty cell: none of "
        "them; a dash: no delta that shows in so few runs. Where both are empty, the loss of the outputs that "
        "usually occur is far below the worst one that the claim allows, and *refuted* is the power that there is. "
        "Paths of the long audit alone have no planted faults, as a call takes 20 ms or more; those without a row were "
        "not measured.",
        "",
        "| path | refuted, short | refuted, long | noise times | delta divided by |",
        "|---|---|---|---|---|",
        *(_path(name, graded, long) for name in dict.fromkeys(row["path"] for row in [*graded, *long])),
        "",
        "**Faults in the code**, one at a time. *Contradicted*: an audit fails. *Refused*: the library itself raised, "
        "by its certificate or by a check of arguments, which shows nothing about the audit. *Unchanged*: on the same "
        "random words every output of every run is the same, bit for bit, so no audit on these inputs can see it: the "
        "fault is in an interval, a certificate, a charge or a file that is read, or needs other data. *Missed*: "
        "outputs differ, by less than these runs show. *Not reached*: no audit in memory calls the function. For each, "
        "`tests/faults` names a test that notices it.",
        "",
        f"| part (`tests/faults`) | faults run | {' | '.join(OUTCOMES)} |",
        f"|{'---|' * (2 + len(OUTCOMES))}",
    ]
    counts = Counter((row["group"], row["outcome"]) for row in found)
    for group in sorted({row["group"] for row in found}):
        cells = [counts[group, outcome] for outcome in OUTCOMES]
        lines.append(f"| {group} | {sum(cells)} | {' | '.join(map(str, cells))} |")
    of = {outcome: [row for row in found if row["outcome"] == outcome] for outcome in OUTCOMES}
    lines += [
        "",
        f"Of {len(found)} faults, {len(of['contradicted'])} were contradicted by the outputs and {len(of['missed'])} "
        "were missed. Faults that are not in `docs/background/audit_power.csv` were not run.",
    ]
    if of["contradicted"]:
        lines += ["", "| contradicted | found by the audit of | epsilon shown, in claims |", "|---|---|---|"]
        lines += [f"| {row['fault']} | {row['audit']} | {row['ratio']} |" for row in of["contradicted"]]
    if of["missed"]:
        lines += ["", "Missed: " + "; ".join(f"*{row['fault']}*" for row in of["missed"]) + "."]
    return "\n".join(lines) + "\n"


def _path(name, graded, long):
    """Return the line of a path."""
    short, longer = ([row for row in part if row["path"] == name] for part in (graded, long))
    if longer and longer[0]["refuted"] == "-":
        return f"| {name} | replayed | replayed |  |  |"
    more = f" ({longer[0]['times']} times)" if longer and longer[0]["times"] != "10" else ""
    cells = [short[0]["refuted"] if short else "", longer[0]["refuted"] + more if longer else ""]
    cells += [short[0]["noise"], short[0]["threshold"]] if short else ["", ""]
    return f"| {name} | {' | '.join(cells)} |"


def outside(found):
    """Return the table of the testers of DP-Auditorium."""
    lines = ["| path | planted | delta | by histogram | by classifier | rejected |", "|---|---|---|---|---|---|"]
    for row in found:
        cells = (row[name] for name in ("path", "planted", "delta", "by histogram", "by classifier", "rejected"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page():
    """Return the page with the sections of the stored tables."""
    text = PAGE.read_text(encoding="utf-8")
    for name, part in (("power", section(rows(), grades(), long_audits())), ("outside", outside(read(OUTSIDE)))):
        first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        text = text[: text.index(first)] + first + part + text[text.index(last) :]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
