"""Run the experiments: `python -m experiments NAME ...`, all of them without a name.

Each writes numbers to experiments/results/NAME.csv, then its pictures, and last the verdicts on the papers' claims.
`--list` lists them, `--small` runs at a tiny size and stores nothing, `--judge` draws and judges stored numbers again.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from experiment import (
    RESULTS,
    Experiment,
    draw_pictures,
    of_data,
    read_rows,
    read_runs,
    read_verdicts,
    run_experiment,
    write_rows,
    write_verdicts,
)
from registry import experiments

import dpsieve


def main() -> None:
    """Run what the command line names, and print the verdicts."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments, or the beginnings of their names")
    parser.add_argument("--list", action="store_true", help="list the experiments and what is stored of them")
    parser.add_argument("--small", action="store_true", help="run at a tiny size, print verdicts, store nothing")
    parser.add_argument("--judge", action="store_true", help="draw and judge stored numbers again, run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="experiments that run at the same time (default: 2)")
    options = parser.parse_args()
    every = experiments()
    chosen = [one for one in every.values() if not options.names or one.name.startswith(tuple(options.names))]
    unknown = [name for name in options.names if not any(one.startswith(name) for one in every)]
    if unknown:
        parser.error(f"no experiment is named {', '.join(unknown)}. Choose from {', '.join(every)}.")
    if options.list:
        show_list(chosen)
    elif options.small:
        for one in chosen:
            print(one.name, *one.judge(one.run(True)), sep="\n  ", flush=True)
    elif options.judge:
        for one in chosen:
            if one.numbers.exists():
                draw_pictures(one)
        write_verdicts(every.values())
        show_verdicts(chosen)
    else:
        sys.exit(run_all(chosen, options.jobs))


def show_list(chosen: list[Experiment]) -> None:
    """Print a line per experiment."""
    runs = read_runs()
    for one in chosen:
        seconds = f", {runs[one.name]['seconds']:.0f} s of a processor" if one.name in runs else ""
        stored = f"stored{seconds}" if one.numbers.exists() else "not stored"
        print(f"{one.name:32} {one.paper:21} {one.figure:32} {stored}")


def show_verdicts(chosen: list[Experiment]) -> None:
    """Print the stored verdicts."""
    verdicts = read_verdicts()
    for one in chosen:
        for verdict in verdicts.get(one.name, []):
            print(f"{one.name}: {verdict.verdict}: {verdict.claim}\n    {verdict.found}\n    {verdict.reason}")


def run_all(chosen: list[Experiment], jobs: int) -> int:
    """Run experiments, the longest first, store each as it ends, and return how many failed."""
    failed = []
    ordered = sorted(chosen, key=lambda one: -one.seconds)
    with ProcessPoolExecutor(min(jobs, len(ordered))) as pool:
        running = {pool.submit(run_named, one.name): one for one in ordered}
        for done in as_completed(running):
            one = running[done]
            try:
                store_run(one, done.result())
            except Exception as error:  # one failure must not lose the others
                failed.append(one.name)
                print(f"{one.name} failed: {error!r}", flush=True)
    write_verdicts(experiments().values())
    show_verdicts(chosen)
    if failed:
        print(f"Failed: {', '.join(failed)}.")
    return len(failed)


def run_named(name: str) -> float:
    """Run one experiment in a process of its own."""
    return run_experiment(experiments()[name])


def store_run(one: Experiment, seconds: float) -> None:
    """Store what is known of a run."""
    data = of_data(read_rows(one.numbers))
    runs = read_runs()
    runs[one.name] = {
        "experiment": one.name, "data": data, "seconds": round(seconds, 1), "version": dpsieve.__version__
    }  # fmt: skip
    order = [*experiments(), *runs]
    write_rows(RESULTS / "runs.csv", sorted(runs.values(), key=lambda row: order.index(row["experiment"])))
    print(f"{one.name}: {seconds:.0f} s, data: {data}, DPSIEVE_DATA={'set' if os.environ.get('DPSIEVE_DATA') else ''}")


if __name__ == "__main__":
    main()
