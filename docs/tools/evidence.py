"""Write docs/background/evidence.md from the stored results of the experiments; with --check, only compare.

    .venv/bin/python docs/tools/evidence.py

Every number and every verdict of the page comes from experiments/results: the numbers of each experiment, and the
functions that judge them.
"""

import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments"))

from experiment import PAPERS, Experiment, Verdict, of_data, read_rows, read_runs  # noqa: E402
from registry import experiments  # noqa: E402

PAGE = ROOT / "docs" / "background" / "evidence.md"
RESULTS = "../../experiments/results"
ORDER = ("same", "better", "differs")

HEAD = """# Evidence

What the five papers say in figures, tables and statements, computed again. `python docs/tools/evidence.py` writes
this page from `experiments/results`; no number on it is typed.

```console
$ make experiments                     # all of them: {minutes:.0f} minutes of a processor
$ python -m experiments skewed_sums    # one, or all whose names begin so
$ python -m experiments --list
```

Each experiment writes its numbers as CSV first. A function judges the claims by these numbers alone, and a test
checks that the stored verdicts are its verdicts:

- **same**: the claim holds here;
- **better**: it holds, and this library goes past it;
- **differs**: it does not hold, with the reason.

`DPSIEVE_DATA` names the folder with the real files. Without a file, a synthetic stand-in of its shape takes its
place, and the numbers say so: 'made up' or 'synthetic' in the column `data`.
"""

NOTES = {
    "weighted sampling": """\
PWS is `simple` (Algorithm 4) and, in the published version alone, `optimal` (Algorithm 5, [corrected](errata.md)):
both report a key equally often, up to 0.05 % at small rates. SbH is `stability`, with the papers' threshold, which
leaves half of delta unused, and with the fair one. Nothing is drawn: these are exact sums over the rows of
[channels](channels.md), the same in every run. Data of figures 2 and 4 are n keys of frequencies
floor((n/i)^alpha); the text does not say so, but these reproduce its numbers. Budgets and rates of figures 3, 5 and
6 are those of the authors' public code: delta 2^-20, epsilon 1, 0.5, 0.25 and 0.1. The pictures of the papers were
not at hand, only text and captions.""",
    "sample-and-threshold": """\
Delta is 1e-8, with a million clients or the words of Shakespeare's works, as in the paper. The stored numbers of
figures 1 and 2 are means of ten runs. [More on clients](federated.md).""",
    "thesis": """\
Chapter 3 has no figure and no table, so each of its statements has an experiment. Kosarak and POS are synthetic
unless their files are in the data folder (`experiments/real_data.py` lists all). Guides and proofs:
[sparse vectors](vectors.md), [streams](streams.md), [sums and means](means.md). Tables 2.1 and 5.D
have no numbers to compare: the first is informal, the second lists settings, which the experiments use.""",
    "missing mass": """\
Of the six sets only Amazon Magazine is here; sets of the sizes of table 1 stand for the others (a tenth of Reddit
and of Movie Reviews), and their set sizes and items follow laws of our choice. `retail` is a set of ours. [More on
discovery](discovery.md).""",
}


def build_page() -> str:
    """Return the page."""
    every = list(experiments().values())
    stored = [one for one in every if one.numbers.exists()]
    runs = read_runs()
    verdicts = {one.name: one.judge(read_rows(one.numbers)) for one in stored}
    minutes = sum(float(runs[one.name]["seconds"]) if one.name in runs else one.seconds for one in every) / 60
    parts = [HEAD.format(minutes=minutes), _summary(stored, verdicts)]
    for paper, title in PAPERS.items():
        parts += [f"## {paper.capitalize()}\n{title}.\n", NOTES[paper] + "\n"]
        for one in every:
            if one.paper == paper:
                parts.append(_section(one, verdicts.get(one.name), runs))
    return "\n".join(parts).rstrip() + "\n"


def _summary(stored: list[Experiment], verdicts: dict[str, list[Verdict]]) -> str:
    lines = ["| paper | claims | same | better | differs |", "|---|---|---|---|---|"]
    for paper in PAPERS:
        counts = Counter(each.verdict for one in stored if one.paper == paper for each in verdicts[one.name])
        lines.append(f"| {paper} | {counts.total()} | " + " | ".join(str(counts[each]) for each in ORDER) + " |")
    return "\n".join(lines) + "\n"


def _section(one: Experiment, verdicts: list[Verdict] | None, runs: dict[str, dict[str, object]]) -> str:
    """Return the section of an experiment."""
    head = f"### {one.figure}: {one.about}\n"
    if verdicts is None:
        return f"{head}`{one.name}`: nothing is stored.\n"
    run = runs.get(one.name)
    how = f"{run['seconds']:.0f} seconds of a processor, version {run['version']}" if run else "time not recorded"
    data = of_data(read_rows(one.numbers))
    where = "" if data == "none" else f", data: {data}"
    lines = [head, f"`{one.name}`: [numbers]({RESULTS}/{one.numbers.name}), {how}{where}.\n"]
    lines += [f"![{plot.title}]({RESULTS}/{one.picture(plot).name})\n" for plot in one.plots]
    lines += ["| claim | found | verdict |", "|---|---|---|"]
    for each in verdicts:
        why = f": {each.reason}" if each.reason else ""
        lines.append(f"| {each.claim} | {each.found} | **{each.verdict}**{why} |".replace("<", "&lt;"))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or report that it is out of date."""
    page = build_page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page else "evidence.md is out of date. Run docs/tools/evidence.py.")
    PAGE.write_text(page)
    print(PAGE)


if __name__ == "__main__":
    main()
