# `make demo` and `make test` need Python 3.11 or newer and make; all else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PEERS := opendp pipelinedp tumult diffprivlib smartnoise datasketches
PEER_PYTHON ?= $(PYTHON)

# Tests start many processes: each would compile every module again without its bytecode on disk.
export PYTHONDONTWRITEBYTECODE =

.PHONY: audit demo docs plots experiments test test-slow coverage test-engines golden faults test-oldest lint lock bench bench-kernel bench-noise bench-channels bench-release bench-large bench-streams bench-federated bench-discovery bench-vectors bench-means bench-explorer bench-engines bench-peers peers package clean

demo: $(VENV)/.run
	$(BIN)/dpsieve demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not server and not slow'

# Audits of all paths, pages in a browser, experiments, damaged files: three more minutes.
test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'slow and not server'

# The tests with every line measured, and a few of them once more with compiled loops as plain Python: the report lists
# the lines that neither reaches.
PLAIN := tests/golden tests/engines/test_loop_checks.py \
  tests/engines/test_compiled.py::test_texts_whose_hashes_all_agree_are_told_apart
coverage: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not server' --cov --cov-report=
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n auto --dist worksteal -W 'ignore:overflow encountered:RuntimeWarning' \
	  --cov --cov-append --cov-report= $(PLAIN)
	$(BIN)/coverage report

# What needs a server: PostgreSQL, and Spark with Java 17 or newer, each of them started once. Without them it is skipped, and says so.
test-engines: $(VENV)/.spark
	$(BIN)/python -m pytest -m server -rs tests/engines

# Store what golden publications and public names are now, and print what changed.
golden: $(VENV)/.dev
	$(BIN)/python tests/golden/update.py
	$(BIN)/python tests/golden/update.py --api

# Audit every public path with ten times the runs of the tests, then plant faults of a known size: an hour of one
# processor. Then plant every fault of tests/faults, which takes about half a minute each, hours in all; what was measured
# is stored at once, and `power.py --missing` goes on where it ended.
audit: $(VENV)/.dev
	$(BIN)/python tests/audit/power.py --paths 10
	$(BIN)/python tests/audit/power.py --grades
	$(BIN)/python tests/audit/power.py

# Plant small faults that break privacy, one at a time, in a copy of the project, and name the test that notices each.
faults: $(VENV)/.dev
	$(BIN)/python tests/faults/run.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

# Build the wheel and the source distribution, check them, and try the wheel in empty environments.
package: $(VENV)/.package
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist
	$(BIN)/python tests/packaging/try_wheel.py

bench: bench-kernel bench-noise bench-channels bench-release bench-streams bench-federated bench-discovery bench-vectors bench-means bench-explorer

bench-kernel: $(VENV)/.dev
	$(BIN)/python benchmarks/kernel.py

bench-noise: $(VENV)/.bench
	$(BIN)/python benchmarks/noise.py

bench-channels: $(VENV)/.bench
	$(BIN)/python benchmarks/channels.py

bench-release: $(VENV)/.bench
	$(BIN)/python benchmarks/release.py

bench-large: $(VENV)/.bench
	$(BIN)/python benchmarks/release.py large

bench-streams: $(VENV)/.bench
	$(BIN)/python benchmarks/streams.py

bench-federated: $(VENV)/.dev
	$(BIN)/python benchmarks/federated.py

bench-discovery: $(VENV)/.dev
	$(BIN)/python benchmarks/discovery.py

bench-vectors: $(VENV)/.dev
	$(BIN)/python benchmarks/vectors.py

bench-means: $(VENV)/.dev
	$(BIN)/python benchmarks/means.py

bench-explorer: $(VENV)/.dev
	$(BIN)/python benchmarks/explorer.py

bench-engines: $(VENV)/.spark
	$(BIN)/python benchmarks/engines.py

# The same with the peers, each in an environment of its own, in about a quarter of an hour. Tumult needs Java 17.
bench-peers: $(PEERS:%=.venv-peer-%/.done) $(VENV)/.bench
	$(BIN)/python benchmarks/release.py
	$(BIN)/python benchmarks/discovery.py
	$(BIN)/python benchmarks/vectors.py
	$(BIN)/python benchmarks/means.py

# dpsieve and its peers, the same jobs on the same data (DPSIEVE_DATA, else made up), in about half an hour: numbers in
# experiments/results/peers.csv, and the page. A peer that cannot be installed or fails is listed with its error.
peers: $(VENV)/.dev
	-$(MAKE) --keep-going $(PEERS:%=.venv-peer-%/.done)
	$(BIN)/dpsieve warm-up
	$(BIN)/python benchmarks/peers/run.py
	$(BIN)/python docs/tools/peers_page.py

# Build the site, offline and strictly: a broken link or an undocumented public name is an error.
docs: $(VENV)/.dev
	$(BIN)/python docs/tools/build.py

# Redraw the pictures of the pages in docs/.
plots: $(VENV)/.docs
	$(BIN)/python docs/plots.py

# Compute every figure and table of the papers: numbers, pictures, verdicts and the page of evidence.
# DPSIEVE_DATA=folder reads real files; without it, synthetic stand-ins.
experiments: $(VENV)/.dev
	$(BIN)/python -m experiments
	$(BIN)/python docs/tools/evidence.py
	$(BIN)/python docs/tools/papers_page.py

# The lower bounds of pyproject.toml, installed in an environment of their own.
test-oldest: .venv-oldest/.done
	.venv-oldest/bin/python -m pytest -n auto --dist worksteal -m 'not server'

$(VENV)/.created:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'dpsieve needs Python 3.11 or newer: make PYTHON=python3.12')"
	$(PYTHON) -m venv $(VENV)
	touch $@

# constraints.txt pins what was tested, so that a clone next year installs the same.
$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) install --quiet --constraint constraints.txt pip  # the pip of Python 3.11 has no --group
	$(PIP) install --quiet --constraint constraints.txt --editable . --group dev
	touch $@ $(VENV)/.run

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --group bench
	touch $@

# Half a gigabyte, for the tests of Spark.
$(VENV)/.spark: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[spark]'
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --group docs
	touch $@

$(VENV)/.package: $(VENV)/.dev
	$(PIP) install --quiet --constraint constraints.txt --group package
	touch $@

.venv-oldest/.done: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt pip
	.venv-oldest/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints-oldest.txt --editable . --group dev
	touch $@

.venv-peer-%/.done: benchmarks/peers/%.txt
	$(PEER_PYTHON) -c "import sys; sys.exit(sys.version_info[:2] != (3, 11) and 'peers are pinned for Python 3.11: make PEER_PYTHON=python3.11')"
	$(PEER_PYTHON) -m venv --clear .venv-peer-$*
	.venv-peer-$*/bin/python -m pip --disable-pip-version-check install --quiet --requirement $< 2> .venv-peer-$*/install.log \
	  || { cat .venv-peer-$*/install.log; exit 1; }
	touch $@

# Write down the newest versions that fit, after the tests have passed with them.
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --upgrade pip
	.venv-lock/bin/python -m pip install --quiet --editable '.[spark]' --group dev --group bench --group docs --group package
	.venv-lock/bin/python -m pytest -n auto --dist worksteal -m 'not server'
	.venv-lock/bin/python -m pytest -m server tests/engines
	{ echo '# The exact versions that were tested, which make installs. `make lock` rewrites this file.'; \
	  .venv-lock/bin/python -m pip freeze --all --exclude setuptools --exclude-editable; } > constraints.txt
	rm -rf .venv-lock

clean:
	rm -rf $(VENV) .venv-oldest .venv-peer-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* build dist
