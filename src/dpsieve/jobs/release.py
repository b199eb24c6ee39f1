"""The main job: one call turns raw events into a private release.

The order is fixed: check the arguments and the columns, bound and count, write the spend down, draw. So a wrong
argument or a file that cannot be read costs no budget, and nothing is drawn that was not paid for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels import KnownKeys, private_scheme
from dpsieve.engines import DuckDB, Engine
from dpsieve.engines.base import checked_bounds
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.plan import Plan, make_known_plan, make_plan
from dpsieve.jobs.preview import Preview, contribution
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.uses import Uses, remaining
from dpsieve.publication import Release
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.sampling.schemes import Scheme, everything
from dpsieve.values.public_keys import known_table

SHARE_FOR_SIZE = 0.05


def release(
    data: Any,
    *,
    key: str | Sequence[str],
    privacy_unit: str | None = None,
    epsilon: float,
    delta: float,
    max_keys_per_unit: int = 1,
    max_rows_per_key: int = 1,
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    mechanism: str = "auto",
    known_keys: Any = None,
    keys_only: bool = False,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    ledger: Ledger | None = None,
    note: str = "",
    progress: Callable[[float], None] | None = None,
    source: Source | None = None,
) -> Release:
    """Release which keys occur in a table, and how often, with (epsilon, delta)-differential privacy.

    Neighbours are add/remove of one privacy unit with all its rows. Each unit keeps at most `max_keys_per_unit` of its
    distinct keys, chosen by a hash with a fresh secret salt, and counts once in each (or for up to `max_rows_per_key`
    of its rows). The counts go through a certified channel; see `make_plan` for the choice of the mechanism.

    Args:
        data: a path, glob or list of Parquet, CSV or JSON-lines files; a pandas or Polars frame; an Arrow table; a
            DuckDB relation, or a connection and a table name.
        key: the column to publish, or several. Rows with a null key are left out.
        privacy_unit: the column that says who is protected; without it, each row is its own unit.
        epsilon, delta: the budget of this release.
        max_keys_per_unit: how many keys a unit may add.
        max_rows_per_key: how many rows of a unit count in one key.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        sample_size: about how many keys to sample; 5 % of epsilon buys the private total that sets the rate.
        mechanism: 'auto', or one of 'optimal', 'simple', 'truncated_geometric', 'stability', 'gaussian'; with known
            keys, 'laplace' or 'gaussian'.
        known_keys: a public list of keys: each of them is answered, with noise and no threshold, and nothing else is.
            Other rows are left out before anything is bounded. With them delta may be 0.
        keys_only: publish the keys without counts.
        allow_null_units: leave out rows whose unit is null, instead of refusing them.
        engine: where to count; DuckDB in this process unless told.
        ledger: the budget to charge; the spend is durable before anything is drawn.
        note: what this release is for, kept in the ledger.
        progress: called with the fraction of the scan that is done.
        source: randomness for tests; the release then says that it is unsafe to publish.
    """
    job = _Job.of(key, privacy_unit, max_keys_per_unit, max_rows_per_key)
    known = job.known(known_keys, scheme, sample_size, keys_only)
    plan = job.plan(epsilon, delta, mechanism, scheme, sample_size, known is not None)
    if engine is not None and not isinstance(engine, Engine):
        raise InvalidType(
            f"engine must be an engine, not {type(engine).__name__}. Pass dpsieve.engines.DuckDB(), or none."
        )
    if ledger is not None:
        if not isinstance(ledger, Ledger):
            raise InvalidType(f"ledger must be a dpsieve.Ledger, not {type(ledger).__name__}. Pass Ledger(path).")
        ledger.check(plan.guarantee)
    counted = (engine or DuckDB()).count(
        data,
        key=job.key,
        unit=job.privacy_unit,
        max_keys=plan.max_keys,
        max_rows=plan.max_rows,
        salt=uniform_bits(resolve(source), 63),
        allow_null_units=allow_null_units,
        known=known,
        progress=progress,
    )
    if ledger is not None:
        ledger.spend(plan.guarantee, note)
    if sample_size is not None:
        plan = job.sized(plan, counted.frequencies, sample_size, source)
    keys = counted.keys.column(0) if len(job.key) == 1 else counted.keys.to_struct_array()
    if isinstance(plan.channel, KnownKeys):
        made = plan.channel.release(keys, counted.frequencies, source=source)
    else:
        made = plan.channel.release(keys, counted.frequencies, keys_only=keys_only, source=source)
    times = 1 if "max_keys" in made.mechanism.parameters else plan.max_keys  # such a mechanism is for whole units
    uses = Uses(times, 0.0 if sample_size is None else plan.guarantee.epsilon * SHARE_FOR_SIZE)
    return replace(made, guarantee=plan.guarantee, uses=uses, notes=_notes(plan, job))


def preview(
    *,
    epsilon: float,
    delta: float,
    key: str | Sequence[str] = "key",
    privacy_unit: str | None = None,
    max_keys_per_unit: int = 1,
    max_rows_per_key: int = 1,
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    mechanism: str = "auto",
    known_keys: Any = None,
    data: Any = None,
    engine: Engine | None = None,
) -> Preview:
    """Say what `release` would do with the same arguments; spends nothing, and reads no more of data than its schema.

    >>> print(preview(epsilon=1.0, delta=1e-8, privacy_unit="user_id").half)
    19
    """
    job = _Job.of(key, privacy_unit, max_keys_per_unit, max_rows_per_key)
    if data is not None:
        bounds = checked_bounds(job.key, job.privacy_unit, 1, 1, 0, False)
        (engine or DuckDB()).check(data, bounds)
    known = job.known(known_keys, scheme, sample_size, keys_only=False)
    return Preview.of(job.plan(epsilon, delta, mechanism, scheme, sample_size, known is not None))


@dataclass(frozen=True)
class _Job:
    """The checked arguments that describe what is counted."""

    key: tuple[str, ...]
    privacy_unit: str | None
    max_keys: int
    max_rows: int

    @classmethod
    def of(cls, key: str | Sequence[str], privacy_unit: str | None, max_keys: int, max_rows: int) -> "_Job":
        hint = "Name the column to publish, such as key='query', or several."
        names = (key,) if isinstance(key, str) else key
        if not isinstance(names, Sequence) or not names:
            raise InvalidType(f"key must be a column name or a list of them. {hint}")
        columns = tuple(validate.text("key", name, hint=hint) for name in names)
        if len(set(columns)) != len(columns):
            raise InvalidValue(f"key names a column twice. {hint}")
        if privacy_unit is None:
            if max_keys != 1 or max_rows != 1:
                raise InvalidValue(
                    "max_keys_per_unit and max_rows_per_key need a privacy_unit: without one each row is its own unit. "
                    "Name the column that says who is protected, such as privacy_unit='user_id'."
                )
        elif validate.text("privacy_unit", privacy_unit, hint="Name the column that says who is protected.") in columns:
            raise InvalidValue("privacy_unit is among the keys, so every unit would be published. Name another column.")
        return cls(columns, privacy_unit, max_keys, max_rows)

    @property
    def unit(self) -> str:
        """Who is protected, in words."""
        return "one row" if self.privacy_unit is None else f"one {self.privacy_unit}"

    def known(self, keys: Any, scheme: Scheme | None, sample_size: int | None, keys_only: bool) -> pa.Table | None:
        """Return the public keys as a table, or None where there are none."""
        if keys is None:
            return None
        if scheme is not None or sample_size is not None or keys_only:
            raise InvalidValue("known_keys are all answered. Leave out scheme, sample_size and keys_only.")
        return known_table(keys, self.key)

    def plan(
        self,
        epsilon: float,
        delta: float,
        mechanism: str,
        scheme: Scheme | None,
        sample_size: int | None,
        known: bool,
    ) -> Plan:
        """Return the plan; with a sample size, for the part of epsilon that is left after the total is bought."""
        if known:
            return make_known_plan(
                epsilon, delta, max_keys=self.max_keys, max_rows=self.max_rows, mechanism=mechanism, unit=self.unit
            )
        if sample_size is None:
            return self._plan(epsilon, delta, mechanism, scheme)
        validate.whole("sample_size", sample_size, low=1, hint="Pass about how many keys to sample.")
        if scheme is not None or self.max_rows > 1:
            raise InvalidValue(
                "sample_size sets the scheme itself and counts units. Leave out scheme and max_rows_per_key."
            )
        whole = self._plan(epsilon, delta, mechanism, everything())
        rest = self._plan(remaining(epsilon, epsilon * SHARE_FOR_SIZE), delta, mechanism, everything())
        return replace(rest, guarantee=whole.guarantee)

    def sized(self, plan: Plan, frequencies: ArrayLike, sample_size: int, source: Source | None) -> Plan:
        """Return the plan with a scheme whose rate comes from a private total."""
        epsilon, delta = plan.guarantee.epsilon, plan.guarantee.delta
        scheme = private_scheme(
            frequencies, sample_size, epsilon=epsilon * SHARE_FOR_SIZE, max_keys=self.max_keys, source=source
        )
        sampled = self._plan(remaining(epsilon, epsilon * SHARE_FOR_SIZE), delta, plan.mechanism, scheme)
        return replace(sampled, guarantee=plan.guarantee, reason=plan.reason)

    def _plan(self, epsilon: float, delta: float, mechanism: str, scheme: Scheme | None) -> Plan:
        return make_plan(
            epsilon,
            delta,
            max_keys=self.max_keys,
            max_rows=self.max_rows,
            mechanism=mechanism,
            scheme=scheme,
            unit=self.unit,
        )


def _notes(plan: Plan, job: _Job) -> dict[str, Any]:
    """Return how the release was made, in public numbers."""
    return {
        "key": list(job.key),
        "privacy_unit": job.privacy_unit or "each row is its own unit",
        "contribution": contribution(plan.max_keys, plan.max_rows),
        "mechanism": plan.mechanism,
        "reason": plan.reason,
    }
