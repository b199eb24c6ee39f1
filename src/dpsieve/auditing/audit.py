"""Audit a mechanism from outside: `ds.audit` runs it on neighbouring inputs and reports what the outputs show.

An audit can show that a guarantee is false, with the stated confidence. It cannot show that one is true: the lower
bound is for these inputs and the best event that was found. `detectable` states what so many runs could have shown.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, overload

import numpy as np

from dpsieve import validate
from dpsieve.auditing.events import Run, find_event
from dpsieve.auditing.outputs import Failure, call, features, statements
from dpsieve.auditing.replay import RecordedSource, first_difference
from dpsieve.display import show_progress
from dpsieve.errors import InvalidType, InvalidValue, PrivacyWarning
from dpsieve.randomness.coins import coins
from dpsieve.randomness.picks import shuffled
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Bools, Floats

from dpsieve.auditing.bounds import (  # isort: skip
    detectable_by_guesses, detectable_by_rates, epsilon_from_guesses, epsilon_from_rates,
)  # fmt: skip

AuditKind = Literal["rates", "dependence", "one_run"]
_USUAL_RUNS = {"rates": 1000, "dependence": 20, "one_run": 1, "job": 300}  # a call of a job takes about 20 ms
_LEAST_RUNS = {"rates": 24, "dependence": 1, "one_run": 1}
_FINDING = 1 / 3  # of all runs
_HINT = "Pass a function of the data, or of the data and a source of randomness."


@dataclass(frozen=True, repr=False)
class Audit:
    """What an audit found.

    Attributes:
        kind: 'rates', 'dependence' or 'one_run'.
        passed: False if these runs contradict the claim, with confidence `level`; for 'dependence', if replayed calls
            differed.
        epsilon, delta: the claim; epsilon is None for 'dependence'.
        lower: a lower bound on epsilon at this delta, with confidence `level`; None for 'dependence'.
        detectable: the least epsilon of a mechanism that so many runs expose in about half of all audits, if its worst
            inputs and event are the ones compared; None for 'dependence'.
        event: the event, the guesses or the difference that shows it.
        compared: what was compared, as text.
        runs: the number of calls.
        level: the confidence.
        counts: how often the event happened and in how many runs, on the one input and on the other; for 'one_run' the
            numbers of parts, of guesses and of correct ones.
    """

    kind: AuditKind
    passed: bool
    epsilon: float | None
    delta: float
    lower: float | None
    detectable: float | None
    event: str
    compared: str
    runs: int
    level: float
    counts: tuple[int, ...] = field(default=())

    def lower_at(self, delta: float | None = None, level: float | None = None) -> float:
        """Return the lower bound on epsilon that the same counts give at another delta, or with another confidence."""
        delta = self.delta if delta is None else validate.between("delta", delta, 0.0, 1.0, hint="Pass delta=1e-8.")
        level = self.level if level is None else _check_level(level)
        if self.kind == "rates":
            return float(epsilon_from_rates(*self.counts, delta, level))  # type: ignore[call-arg]
        if self.kind == "one_run":
            return epsilon_from_guesses(*self.counts, delta, level)  # type: ignore[call-arg]
        raise InvalidValue("an audit of kind 'dependence' bounds no epsilon. Use kind='rates' or 'one_run'.")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return plain | {"counts": list(self.counts)}

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        if self.kind == "dependence":
            return f"<Audit {verdict}: {self.event or 'no difference'} ({self.compared})>"
        claim = f"claimed {self.epsilon:g}" + (f" with delta {self.delta:g}" if self.delta else "")
        return f"<Audit {verdict}: epsilon at least {self.lower:.3g} ({self.level:.7g}), {claim}; {self.event}>"


@overload
def audit(
    run: str, *, arguments: Mapping[str, Any] = ..., epsilon: float, delta: float = ..., runs: int | None = ...,
    canaries: int = ..., level: float = ..., progress: Callable[[float], None] | bool | None = ...,
    source: Source | None = ...,
) -> dict[str, Audit]: ...  # fmt: skip
@overload
def audit(
    run: Callable[..., Any], data: Any, neighbour: Any = ..., *, epsilon: float | None = ..., delta: float = ...,
    kind: AuditKind = ..., runs: int | None = ..., level: float = ..., affected: Collection[Any] = ...,
    score: Callable[[Any], Any] | None = ..., guesses: int | None = ...,
    progress: Callable[[float], None] | bool | None = ..., source: Source | None = ...,
) -> Audit: ...  # fmt: skip
def audit(
    run: Callable[..., Any] | str,
    data: Any = None,
    neighbour: Any = None,
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    kind: AuditKind = "rates",
    runs: int | None = None,
    level: float = 0.95,
    affected: Collection[Any] = (),
    score: Callable[[Any], Any] | None = None,
    guesses: int | None = None,
    progress: Callable[[float], None] | bool | None = None,
    source: Source | None = None,
    arguments: Mapping[str, Any] | None = None,
    canaries: int | None = None,
) -> Audit | dict[str, Audit]:
    """Audit a mechanism, or a job of the library by its name: look for outputs that contradict the guarantee.

    A job is audited on inputs that are made up for it. The result is a dict with an audit per pair of inputs.

    Three kinds, each for any mechanism, of this library or your own:

    - 'rates' runs it many times on `data` and on `neighbour`, finds the event that tells them apart best on a third of
      the runs, and bounds epsilon by its rates on the others;
    - 'dependence' replays the same random words on `data` and on `neighbour`, and compares what is drawn, and all that
      leaves the call except rows of `affected` keys;
    - 'one_run' is for jobs that are run once: `data` is a list of canaries, each of which goes in by a fair coin (or
      its alternative in the list `neighbour`). The coins are then guessed from the output.

    A passed audit is no proof; see `Audit.detectable`. Audit with made-up data: events may quote keys of the output.

    Args:
        run: the mechanism: a function of the data, or of the data and a source of randomness, which 'dependence' needs.
            It returns a publication, a table, numbers, bytes, the path of what it saved, or anything with a stable
            `repr`; exceptions count as outputs. For 'one_run' the data are the chosen canaries, as a list. Or the name
            of a job: 'release', 'release_counts', 'discover', 'top_k', 'hitting_set', 'sum', 'mean', 'quantile',
            'collect_histogram', 'collect_heavy_hitters', 'collect_quantiles', 'MisraGries', 'UserMisraGries' or
            'SparseVector'.
        data: the input; for 'one_run' the list of canaries.
        neighbour: an input that the guarantee makes indistinguishable; for 'one_run' the alternatives, or None where
            a canary is left out.
        epsilon: the epsilon that is claimed.
        delta: the delta that is claimed.
        kind: 'rates', 'dependence' or 'one_run'.
        runs: the number of calls, for 'rates' and 'dependence' on each input. Default 1,000, 20 and 1; for a job by
            name, those of 'rates', 300.
        level: the confidence of the verdict and of the lower bound; for a job by name, of all verdicts together.
        affected: for 'dependence', keys whose rows may differ: those that the unit in question holds. None are, by
            default: as for two layouts of the same data.
        score: for 'one_run', a function of the output that returns a number per canary: positive where it looks as if
            the canary is in, negative where not, 0 for no guess. By default the output is these numbers.
        guesses: for 'one_run', how many guesses to make per run, those of the largest scores. Default: one per canary.
        progress: a function of the completed share, or True to show it.
        source: randomness for tests.
        arguments: for a job by name, its arguments besides the budget and its data, such as {'max_keys_per_unit': 1}.
        canaries: for a job by name, the number of made-up units in its audit of one run. Default 1,000.

    >>> import dpsieve as ds
    >>> def noisy(data, source):
    ...     return len(data) + int(ds.randomness.noise.discrete_laplace(0.5, 1, source=source)[0])
    >>> found = audit(noisy, ["tea"], ["tea", "milk"], epsilon=1.0, runs=600, source=ds.testing.insecure_source(1))
    >>> found.passed, found.lower > 1.0  # the scale 0.5 is that of epsilon 2
    (False, True)
    """
    _check_unused(run, {"data": data, "neighbour": neighbour, "affected": affected or None, "score": score,
                        "guesses": guesses, "kind": None if kind == "rates" else kind},
                  {"arguments": arguments, "canaries": canaries})  # fmt: skip
    kind = validate.choice("kind", kind, ("rates", "dependence", "one_run"))
    fewest, usual = _LEAST_RUNS[kind], _USUAL_RUNS["job" if isinstance(run, str) else kind]
    hint = f"Pass at least {fewest}, such as runs={usual}."
    number = validate.whole("runs", usual if runs is None else runs, low=fewest, high=10**8, hint=hint)
    level, claimed = _check_level(level), 0.0
    if kind != "dependence":
        if epsilon is None:
            raise InvalidValue("epsilon is missing. Pass the epsilon that is claimed.", argument="epsilon")
        claimed = epsilon if isinstance(run, str) else validate.epsilon(epsilon)  # a job checks its own
        delta = validate.between("delta", delta, 0.0, 1.0, hint="Pass the delta that is claimed, such as 1e-8.")
    report = show_progress("auditing") if progress is True else progress or (lambda _: None)
    randomness = resolve(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        if isinstance(run, str):
            return _audit_job(run, arguments or {}, claimed, delta, number, canaries, level, randomness, report)
        caller = _caller(run)
        if kind == "dependence":
            return _audit_dependence(caller, data, neighbour, number, level, affected, randomness, report)
        if kind == "one_run":
            return _audit_one_run(
                caller, data, neighbour, claimed, delta, number, level, score, guesses, randomness, report
            )
        return _audit_rates(caller, data, neighbour, claimed, delta, number, level, randomness, report)


Caller = Callable[[Any, Source], Any]
Report = Callable[[float], None]


def _check_unused(run: Any, of_functions: dict[str, Any], of_jobs: dict[str, Any]) -> None:
    """Raise for an argument that does not go with what is audited."""
    unused, other = (of_functions, "a function") if isinstance(run, str) else (of_jobs, "the name of a job")
    for name in [name for name, value in unused.items() if value is not None]:
        raise InvalidValue(f"{name} goes with {other} as run. Leave it out, or pass {other}.", argument=name)


def _audit_job(
    job: str, arguments: Mapping[str, Any], epsilon: float, delta: float, runs: int, canaries: int | None, level: float,
    source: Source, report: Report,
) -> dict[str, Audit]:  # fmt: skip
    """Return the audits of a job on all inputs that are made up for it, by the name of the inputs."""
    from dpsieve.auditing.inputs import FEWEST, SET_BY_AUDIT, job_inputs

    hint = "Pass the number of made-up units, such as canaries=1000."
    number = validate.whole("canaries", 1000 if canaries is None else canaries, low=FEWEST, high=100_000, hint=hint)
    if taken := sorted(SET_BY_AUDIT & arguments.keys()):
        fix = "Leave it out, or pass a function that runs the job, and two inputs of your own."
        why = "is set by the audit, which makes up its data and takes the budget itself"
        raise InvalidValue(f"{taken[0]} of arguments {why}. {fix}", argument="arguments")
    inputs = list(job_inputs(job, {"epsilon": epsilon, "delta": delta, **arguments}, number, source))
    each = 1 - (1 - level) / len(inputs)
    found = {}
    for i, one in enumerate(inputs):
        given: Any = {"progress": lambda done, i=i: report((i + done) / len(inputs)), "source": source}
        found[one.name] = one.audit(epsilon, delta, each, runs, **given)
    return found


def _caller(run: Callable[..., Any]) -> Caller:
    """Return a function of data and source that calls `run` with what it takes."""
    if not callable(run):
        raise InvalidType(f"run must be a function, not {type(run).__name__}. {_HINT}", argument="run")
    try:
        parameters = inspect.signature(run).parameters
    except ValueError:  # a builtin
        return lambda data, _: run(data)
    if "source" in parameters:
        return lambda data, source: run(data, source=source)
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len([p for p in positional if p.default is p.empty]) > 1:
        return run
    return lambda data, _: run(data)


def _audit_rates(
    run: Caller, data: Any, neighbour: Any, epsilon: float, delta: float, runs: int, level: float, source: Source,
    report: Report,
) -> Audit:  # fmt: skip
    found: list[list[Run]] = [[], []]
    failures = 0
    for number in range(runs):
        for side, given in enumerate((data, neighbour)):
            output = call(lambda given=given: run(given, source))  # type: ignore[misc]
            failures += isinstance(output, Failure)
            found[side].append(features(output))
        if failures == 2 * (number + 1) and number == _LEAST_RUNS["rates"] // 2:
            output = cast(Failure, output)
            why = f"run raised {output.kind} in each of the first {failures} calls. Call it once on data to see why."
            raise InvalidValue(why, argument="run")
        report((number + 1) / runs)
    first = round(runs * _FINDING)
    tests = runs - first
    event = find_event(found[0][:first], found[1][:first], delta, level, tests)
    sides = found[::-1] if event.reversed else found
    counts = (event.count(sides[0][first:]), tests, event.count(sides[1][first:]), tests)
    lower = float(epsilon_from_rates(*counts, delta, level))
    more, less = ("neighbour", "data") if event.reversed else ("data", "neighbour")
    shown = f"{event}, in {counts[0]:,} of {tests:,} runs on {more} and in {counts[2]:,} of {tests:,} on {less}"
    detectable = detectable_by_rates(tests, tests, epsilon, delta, level)
    names = len({name for run in found[0] for name in run})
    compared = f"{names:,} features of the outputs of {runs:,} runs on each input"
    return Audit("rates", lower <= epsilon, epsilon, delta, lower, detectable, shown, compared, 2 * runs, level, counts)


def _audit_one_run(
    run: Caller, data: Any, neighbour: Any, epsilon: float, delta: float, runs: int, level: float,
    score: Callable[[Any], Any] | None, guesses: int | None, source: Source, report: Report,
) -> Audit:  # fmt: skip
    fix = "Pass a list of canaries, such as one table of rows per made-up unit."
    canaries = _parts("data", data, fix)
    others = None if neighbour is None else _parts("neighbour", neighbour, fix)
    if others is not None and len(others) != len(canaries):
        raise InvalidValue(f"neighbour has not one alternative per canary. {fix}", argument="neighbour")
    most = len(canaries)
    hint = "Pass how many coins to guess, at most one per canary."
    number = most if guesses is None else validate.whole("guesses", guesses, low=1, high=most, hint=hint)
    correct = 0
    for done in range(runs):
        chosen = coins(most, 0.5, source=source)
        parts = [
            canary if is_in else others[i]  # type: ignore[index]
            for i, (canary, is_in) in enumerate(zip(canaries, chosen, strict=True))
            if is_in or others is not None
        ]
        output = run(parts, source)
        correct += _correct(_scores(output if score is None else score(output), most), chosen, number, source)
        report((done + 1) / runs)
    counts = (runs * most, runs * number, correct)
    lower = epsilon_from_guesses(*counts, delta, level)
    shown = f"{correct:,} of {runs * number:,} coins guessed from the output"
    detectable = detectable_by_guesses(*counts[:2], epsilon, delta, level)
    compared = f"{most:,} canaries in {runs:,} run" + ("s" if runs > 1 else "")
    return Audit("one_run", lower <= epsilon, epsilon, delta, lower, detectable, shown, compared, runs, level, counts)


def _parts(name: str, values: Any, fix: str) -> Sequence[Any]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not len(values):
        raise InvalidType(f"{name} is no list of canaries. {fix}", argument=name)
    return values


def _scores(scores: Any, most: int) -> Floats:
    fix = "Return a number per canary from score."
    numbers = validate.finite("score", scores, hint=fix)
    if len(numbers) != most:
        raise InvalidValue(f"score has not one number per canary. {fix}", argument="score")
    return numbers


def _correct(scores: Floats, chosen: Bools, guesses: int, source: Source) -> int:
    """Return how many of the guesses with the largest scores are right; equal scores are taken in random order."""
    order = shuffled(len(scores), source)
    order = order[np.argsort(-np.abs(scores[order]), kind="stable")][:guesses]
    return int(((scores[order] > 0) == chosen[order])[scores[order] != 0].sum())


def _audit_dependence(
    run: Caller, data: Any, neighbour: Any, runs: int, level: float, affected: Collection[Any], source: Source,
    report: Report,
) -> Audit:  # fmt: skip
    difference, draws, words, places = "", 0, 0, 0
    for done in range(runs):
        recorded = RecordedSource.new(source, equal=not affected)
        results = []
        for given in (data, data, neighbour):
            replay = recorded.replayed()
            output = call(lambda given=given, replay=replay: run(given, replay))  # type: ignore[misc]
            results.append((replay.draws, statements(output, affected)))
        (first, stated), again, other = results
        if not first and not done:
            why = "run draws nothing from its source. Pass a function (data, source) that passes the source on."
            raise InvalidValue(why, argument="run")
        draws, words, places = draws + len(first), words + sum(d.words for d in first), places + len(stated)
        repeated = first_difference(first, again[0], stated, again[1])
        difference = f"not repeatable on the same data: {repeated}" if repeated else ""
        difference = difference or first_difference(first, other[0], stated, other[1])
        report((done + 1) / runs)
        if difference:
            break
    compared = f"{places:,} parts of outputs and {draws:,} draws of {words:,} words in {done + 1:,} replayed runs"
    return Audit("dependence", not difference, None, 0.0, None, None, difference, compared, 3 * (done + 1), level)


def _check_level(level: float) -> float:
    level = validate.between("level", level, 0.0, 1.0, hint="Pass a confidence such as level=0.95.")
    if not 0 < level < 1 or math.isnan(level):
        raise InvalidValue("level is not between 0 and 1. Pass a confidence such as level=0.95.", argument="level")
    return level
