"""What a fault is: a small change that breaks privacy, and the narrowest tests that should notice it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`old` becomes `new` in a file of src/dpsieve; `tests` are files or tests below tests/, with spaces between."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    @property
    def path(self) -> str:
        return f"src/dpsieve/{self.file}"
