"""Build the site: `make docs` writes build/site/index.html, without a request to the network.

The pages of docs/ are copied, the reference is written beside them, and Sphinx reads both. Any warning is an error: a
broken link, a page that no list names, a public name without a docstring.
"""

import argparse
import re
import shutil
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DONE = "done"  # an empty file beside a site that was built without a problem
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # pages of the site that lie in the root

# What Sphinx writes, and what assistive technology needs instead: the level of a heading, code that scrolls with the
# keyboard, and no definition lists for arguments, which have no terms.
ACCESSIBLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<dl>\n<dd><em class="sig-param">': '<dl role="presentation">\n<dd role="presentation"><em class="sig-param">',
    '\n<dd><em class="sig-param">': '\n<dd role="presentation"><em class="sig-param">',
}


def build(folder: Path) -> Path:
    """Build the site in a folder, and return its first page."""
    import reference  # beside this script
    from sphinx.cmd.build import build_main

    source, site = folder / "source", folder / "html"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("tools", "*.py", "__pycache__"))
    for page in [*DOCS.rglob("*.md"), *(ROOT / name for name in PROJECT)]:
        copy = source / (page.relative_to(DOCS) if DOCS in page.parents else f"project/{page.name}")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_relinked(page.read_text(encoding="utf-8"), page, copy, source), encoding="utf-8")
    reference.write(source / "reference")
    options = ["-b", "html", "-W", "--keep-going", "-n", "-q", "-c", str(DOCS / "tools")]
    options += ["-D", f"html_static_path={source / 'static'}", "-d", str(folder / "trees")]
    if build_main([*options, str(source), str(site)]):
        raise SystemExit("The site has problems: see the warnings above.")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for made, accessible in ACCESSIBLE.items():
            text = text.replace(made, accessible)
        page.write_text(text, encoding="utf-8")
    (folder / DONE).touch()
    return site / "index.html"


def is_current(folder: Path) -> bool:
    """Return whether the site in a folder was built after every change of what it is made from."""
    made_from = ("docs", "src", "tests/golden", "examples", "experiments")
    tops = [*(ROOT / name for name in made_from), *(path for path in ROOT.iterdir() if path.is_file())]
    below = (path for top in tops for path in top.rglob("*"))
    sources = [path for path in (*tops, *below) if "__pycache__" not in path.parts and path.suffix != ".pyc"]
    done = folder / DONE
    return done.exists() and done.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def _relinked(text: str, page: Path, copy: Path, source: Path) -> str:
    """Return a page with its links to files of the repository as links to their places in the site."""

    def place(link: re.Match[str]) -> str:
        path, hash_sign, anchor = link[1].partition("#")
        target = (page.parent / path).resolve()
        if re.match(r"\w+:", link[1]) or not path or not target.is_relative_to(ROOT):
            return link[0]
        inside = target.is_relative_to(DOCS)
        there = source / (target.relative_to(DOCS) if inside else Path("project") / target.relative_to(ROOT))
        if not inside and target.is_file() and target.name not in PROJECT:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, there)  # a picture, a table of numbers, a notebook
        return f"]({relpath(there, copy.parent)}{hash_sign}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", place, text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=ROOT / "build/site", type=Path)
    parser.add_argument("--if-changed", action="store_true", help="keep a site that is newer than all it is made from")
    given = parser.parse_args()
    if not (given.if_changed and is_current(given.folder)):
        print(f"Open {build(given.folder.resolve())}")
