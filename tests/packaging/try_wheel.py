"""Try the wheel in dist/ as users install it; `make package` runs this after it has built it.

A device installs the wheel without its dependencies: that is tried with every Python of this machine that is supported.
With this Python, the dependencies of the project's environment are added, and a table is released.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

DIST, MINORS = Path(__file__).parents[2] / "dist", ("3.11", "3.12", "3.13")
DEVICE = """
import json, sys
from dpsieve.federated.client import Budget, ValueQuestion, padded_message, value_answer
question = ValueQuestion.from_json(json.loads(sys.argv[1]))
budget = Budget(sys.argv[2], epsilon=4.0, delta=1e-6, exposure=0.5)
answer = value_answer(question, "tea", budget=budget)
assert len(padded_message(question, answer)) == len(padded_message(question, None))
assert not {"numpy", "pyarrow"} & set(sys.modules)
"""
SERVER = """
import json, dpsieve as ds
print(json.dumps(ds.federated.Histogram(ds.federated.plan(epsilon=1.0, delta=1e-8)).question.to_json()))
"""
RELEASE = """
import sys, pyarrow as pa, dpsieve as ds
assert ds.__file__.startswith(sys.prefix), ds.__file__
table = pa.table({"drink": ["tea"] * 4000 + ["mate"] * 2})
print(ds.release(table, key="drink", privacy_unit="row", epsilon=1.0, delta=1e-8).table["drink"].to_pylist())
"""


def pythons():
    """Return the supported interpreters of this machine, this one first, one per minor version."""
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for minor in MINORS:
        for place in (shutil.which(f"python{minor}"), *Path.home().glob(f".pyenv/versions/{minor}.*/bin/python")):
            if minor not in found and place and not subprocess.run([place, "-c", ""], capture_output=True).returncode:
                found[minor] = str(place)
    return found


def run(python, *arguments):
    """Run Python without paths of this environment, and return what it prints."""
    return subprocess.run([python, "-I", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def check_metadata(wheel):
    """Links of the description lead out of the repository, and extras are those of users."""
    with ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    text = metadata.get_payload()
    assert "](" not in text.replace("](https://", ""), "the description has a link into the repository"
    assert "make demo" not in text and metadata["Author"]
    assert not {"dev", "docs", "bench", "package"} & set(metadata.get_all("Provides-Extra"))


def main():
    (wheel,) = DIST.glob("*.whl")
    check_metadata(wheel)
    question = run(sys.executable, "-c", SERVER)
    for minor, python in pythons().items():
        with tempfile.TemporaryDirectory() as folder:
            run(python, "-m", "venv", "--without-pip", folder)
            target = sysconfig.get_path("purelib", "venv", {"base": folder, "py_version_short": minor})
            run(
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--no-compile",
                "--target",
                target,
                wheel,
            )
            bare = f"{folder}/bin/python"
            run(bare, "-c", DEVICE, question, f"{folder}/device.budget")
            print(f"Python {minor}: a device answers with the wheel alone.")
            if python == sys.executable:
                # A plain path: the .pth files there, one of which is this clone's, are not read.
                (Path(target) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
                assert run(bare, "-c", RELEASE).strip() == "['tea']"
                assert "release" in run(bare, "-m", "dpsieve", "--help")
                print(f"Python {minor}: a table is released.")
    for minor in set(MINORS) - set(pythons()):
        print(f"Python {minor} is not on this machine: not tried.")


if __name__ == "__main__":
    main()
