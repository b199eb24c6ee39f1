"""What discovery publishes: a set of keys, the k most frequent ones in order, or k keys that reach most units."""

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dpsieve.errors import InvalidValue
from dpsieve.privacy.composed import Composed
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.publication import Notes, Publication
from dpsieve.randomness.source import Source
from dpsieve.values.keys import check_published, order_of, published


@dataclass(frozen=True, eq=False, repr=False)
class KeySet(Publication):
    """Keys that occur, without any number.

    Attributes:
        table: one row for each selected key, sorted by key: the key columns under their own names.
    """

    kind: ClassVar[str] = "key_set"
    makers: ClassVar[tuple[str, ...]] = (
        "weighted_gaussian", "renyi", "renyi_two_rounds", "greedy", "one_key", "policy_gaussian", "policy_greedy",
        "repeated_rounds",
    )  # fmt: skip

    def check(self) -> None:
        """Raise unless the table holds distinct keys in order, and the mechanism is one that selects keys."""
        check_published(self.table)
        self._check_mechanism()

    def _check_mechanism(self) -> Mechanism:
        last = self.mechanism.last if isinstance(self.mechanism, Composed) else self.mechanism
        if last.name not in self.makers:
            raise InvalidValue(f"mechanism publishes no {self.kind.replace('_', ' ')}. Use it as it was made.")
        return last


def key_set(mechanism: Mechanism, keys: pa.Table, *, source: Source, contribution: str, reason: str) -> KeySet:
    """Return the publication of selected keys, sorted."""
    table = published(keys)
    return KeySet(
        table.take(order_of(table)),
        mechanism,
        unsafe_to_publish=not source.publishable,
        notes=Notes(contribution, reason),
    )
