# `make repro` rebuilds every result, `make test` runs the tests; each sets up .venv by itself from the package index.
#
# torch is pinned to one release and comes from the index like everything else; on Linux that is a CUDA build of a few
# gigabytes, although nothing here needs a GPU. A smaller CPU build of the same release serves as well: install it into
# .venv first (or point pip at it with PIP_FIND_LINKS), the pin is then already met.

PYTHON ?= python3
VENV   ?= .venv
DATA   ?=
SETS   ?=

# one thread in every linear algebra library: results do not depend on the machine's cores, timings are of our code
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export DVC_NO_ANALYTICS = 1
export PATH := $(abspath $(VENV))/bin:$(PATH)

READY = $(VENV)/.ready

.PHONY: help install repro test test-fast bench lint format lafan1 clean

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*##/\1:/p' $(MAKEFILE_LIST) | column -t -s:

install: $(READY)  ## set up .venv

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
		f"make: Python {v[0]}.{v[1]} found, 3.11 to 3.13 expected; name one with PYTHON=python3.13")'
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench,dev,live]'
	@touch $@

repro: $(READY)  ## fetch the data, rebuild what is not up to date, measure this machine, write the report
	dvc repro --force --single-item fetch
	dvc repro
	dvc repro --force --single-item benchmark
	dvc repro

test: $(READY)  ## run the tests
	python -m pytest

test-fast: $(READY)  ## run the tests but the slow ones
	python -m pytest -m 'not slow'

bench: $(READY)  ## time this machine without touching the results
	python -m pytest benchmarks --benchmark-only

lint: $(READY)  ## style and types
	ruff check .
	ruff format --check .
	pyright

format: $(READY)  ## put the style right
	ruff check --fix .
	ruff format .

# The whole pipeline on the user's own LaFAN1 files, in build/lafan1, which git ignores: the licence (CC BY-NC-ND 4.0)
# lets neither the clips nor what is derived from them go into the repository. Only the tables come back.
lafan1: $(READY)  ## run the pipeline on your LaFAN1 files, DATA=FOLDER
	@test -d "$(DATA)" || { echo "make lafan1: DATA=$(DATA): no such folder (expected the LaFAN1 BVH files)" >&2; exit 2; }
	bash .ci/copy_tree build/lafan1
	cd build/lafan1 && python -m engine.overrides params.yaml --file lafan1.yaml --set fetch.lafan1.path="$(abspath $(DATA))" \
		&& dvc repro
	mkdir -p results/lafan1 && cp build/lafan1/results/*.csv build/lafan1/results/*.json build/lafan1/results/*.md results/lafan1/

clean:  ## remove .venv and what the tests left; results and models stay
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis .benchmarks
