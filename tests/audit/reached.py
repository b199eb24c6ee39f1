"""What a call reaches: functions of the library, mechanisms that draw, and requests of jobs.

Faults are run only against audits that reach the function they change; and no mechanism, choice or public function that
draws may be without an audit.
"""

import functools
import gc
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import dpsieve as ds
from dpsieve.auditing.outputs import call
from dpsieve.jobs.request import Request
from dpsieve.privacy.mechanism import Mechanism

PACKAGE = str(Path(ds.__file__).parent)


@dataclass
class Reached:
    """What calls reached.

    Attributes:
        codes: the code of each function.
        drew: the types of mechanisms with a method that had a source of randomness.
        requests: the requests that were made.
    """

    codes: set = field(default_factory=set)
    drew: set = field(default_factory=set)
    requests: list = field(default_factory=list)

    @property
    def functions(self):
        """Pairs of a file below the package and a qualified name."""
        return {
            (code.co_filename[len(PACKAGE) + 1 :], code.co_qualname.replace(".<locals>", "")) for code in self.codes
        }

    def _enter(self, frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        self.codes.add(code)
        if "self" not in code.co_varnames[: code.co_argcount]:
            return
        owner = frame.f_locals.get("self")
        if isinstance(owner, Mechanism) and "source" in frame.f_locals:
            self.drew.add(type(owner))
        elif isinstance(owner, Request) and code.co_name == "__post_init__" and owner not in self.requests[-1:]:
            self.requests.append(owner)

    def trace(self, run):
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        try:
            return run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def run_once(path, reached=None, *, seed=1):
    """Make a path, call it once on each input, and return what that reached."""
    reached = reached or Reached()

    def run():
        inputs, source = path.inputs(), ds.testing.insecure_source(seed)
        given = [inputs.data] if inputs.kind == "one_run" else [inputs.data, inputs.neighbour]
        for data in given:
            call(lambda data=data: inputs.run(data, source))

    reached.trace(run)
    return reached


def forget():
    """Empty the caches of functions of the library, so that what they call is called again."""
    for each in [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]:
        if each.__module__.startswith("dpsieve.") and not each.__module__.startswith("dpsieve.compiled."):
            each.cache_clear()
