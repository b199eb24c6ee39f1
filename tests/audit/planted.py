"""What a process of `power.py` does, with at most one fault in the code that it imports: trace paths, or audit them.

It reads its task as JSON from its standard input, and prints the result as JSON in its last line. The fault replaces
one file while it is imported: nothing changes on disk, and other functions are loaded from the cache of compiled code.
"""

import hashlib
import json
import sys
import warnings
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]


def plant(file, text):
    """Let this process import `text` in place of a file below src/dpsieve."""
    target, original = str(ROOT / "src/dpsieve" / file), SourceFileLoader.get_code

    def get_code(loader, module):
        return compile(text, target, "exec") if loader.path == target else original(loader, module)

    SourceFileLoader.get_code = get_code


def trace(names):
    """Return the functions that one call of each path enters, with nothing cached from the calls before."""
    from paths import EVERY
    from reached import forget, run_once

    functions = {}
    for name in names:
        forget()
        functions[name] = sorted(run_once(EVERY[name]).functions)
    return functions


def audit(names):
    """Return what the first audit that fails found, or the digests of all outputs of all audits."""
    from paths import EVERY

    digests = {}
    for name in names:
        try:
            found, digests[name] = audit_and_digest(EVERY[name])
        except Exception as error:
            return {"audit": name, "ratio": type(error).__name__}
        if not found.passed:
            ratio = round(found.lower / found.epsilon, 3) if found.lower else "rows differ"
            return {"audit": name, "ratio": ratio, "contradicted": True}
    return {"digests": digests}


def audit_and_digest(path):
    """Return the audit of a path with the runs of the tests, and a digest of all outputs in their order."""
    from dataclasses import replace

    from dpsieve.auditing.outputs import statements

    outputs, inputs = hashlib.sha256(), path.inputs()

    def run(data, source):
        output = inputs.run(data, source)
        outputs.update(repr(statements(output, ())).encode())
        return output

    observed = replace(inputs, run=run)
    return replace(path, make=lambda **_: observed).audit(), outputs.hexdigest()


def main():
    task = json.load(sys.stdin)
    if task["fault"]:
        plant(*task["fault"])
    warnings.simplefilter("ignore")
    import dpsieve

    assert Path(dpsieve.__file__).is_relative_to(ROOT / "src"), dpsieve.__file__
    print(json.dumps((trace if task["trace"] else audit)(task["names"])))


if __name__ == "__main__":
    main()
