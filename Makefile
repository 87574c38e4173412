# `make demo` and `make test` do all the set-up they need; see README.md.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# A hashed lock pins every dependency, the build backend included: an install fetches nothing unpinned.
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement
EDITABLE = $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .

.PHONY: demo test test-cluster test-cluster-again test-api-faults test-faults cluster cluster-build cluster-down lint lock schema examples sessions walkthrough clean

demo: $(VENV)/.runtime
	$(BIN)/gpuctl check --from examples/degraded --fail-on never

test: $(VENV)/.dev
	$(BIN)/pytest -m "not cluster" -n auto

test-cluster: cluster-build
	$(BIN)/pytest -m "cluster and not api_faults and not faults" -n 2 --dist loadfile --no-loadscope-reorder \
	  tests/cluster

# What failed there, once more, one test after the other on a cluster of its own.
test-cluster-again: cluster-build
	$(BIN)/pytest -m "cluster and not api_faults and not faults" --last-failed --last-failed-no-failures none \
	  tests/cluster

# Every request of a check with every fault of an API server: takes long; compares docs/api-faults.md.
test-api-faults: cluster-build
	$(BIN)/pytest -m api_faults tests/cluster

# Runbooks killed, stopped, refused and disturbed at every write: takes long; compares docs/faults.md.
test-faults: cluster-build
	$(BIN)/pytest -m faults tests/cluster

# What the cluster is made of, unless it is there: a quarter of an hour.
cluster-build: $(VENV)/.dev
	$(BIN)/python -m tests.cluster.bed build

cluster: $(VENV)/.dev
	@$(BIN)/python -m tests.cluster.bed up

cluster-down: $(VENV)/.dev
	@$(BIN)/python -m tests.cluster.bed down

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy gpuctl checks tests
	$(BIN)/lint-imports

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/pyvenv.cfg requirements.lock pyproject.toml
	$(INSTALL) requirements.lock
	$(EDITABLE)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	$(INSTALL) requirements-dev.lock
	@touch $@

# Writes both locks anew. They name no index: any mirror can serve them.
lock: $(VENV)/pyvenv.cfg
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url pyproject.toml --group build --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-emit-index-url pyproject.toml --group dev --constraint requirements.lock --output-file requirements-dev.lock

# The clusters of examples/, taken anew from the real control plane.
examples: $(VENV)/.dev
	$(BIN)/python -m tests.cluster.examples

# The JSON Schemas of what gpuctl writes and reads, from the code.
schema: $(VENV)/.dev
	$(BIN)/python -m tests.schemas

# The terminal sessions in README and docs, run anew.
sessions: $(VENV)/.dev
	$(BIN)/python -m tests.docs.sessions

# The live sessions of docs/maintenance-window.md, run anew on the real control plane.
walkthrough: $(VENV)/.dev
	$(BIN)/python -m tests.cluster.walkthrough

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
