# fiprof: `make help` lists the targets. Everything lives in .venv; nothing is installed elsewhere.
PYTHON ?= python3
# The interpreter that has torch and flashinfer, for `make collect` on a GPU machine that already has them.
WORKLOAD_PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
RECORDED := artifacts/recorded/20261121-120959-all
STUDY := study-flashinfer-quick
HAS_GPU := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')

.DEFAULT_GOAL := help
.PHONY: help setup collect test soak lint types check size bench docs reports pictures clean
# What to install, e.g. `$(call install,.[docs])`.
install = uv pip install --quiet --python $(BIN)/python --editable '$(1)' 2>/dev/null || \
  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '$(1)'

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Install fiprof and what its tests need into .venv (1.1 GB, no torch)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fiprof needs Python 3.11 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# fiprof alone, 0.4 GB.
$(BIN)/fiprof: pyproject.toml | $(BIN)/python
	$(call install,.)
	@touch $@

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(call install,.[dev])
	@touch $(BIN)/fiprof $@

ifeq ($(HAS_GPU),0)
collect: $(BIN)/fiprof ## Profile the prefill kernel and say what limits it; without a GPU, replay the recorded run
	@echo "No NVIDIA GPU here: replaying the recorded run $(RECORDED) through the same pipeline." >&2
	$(BIN)/fiprof collect --replay $(RECORDED)
	$(BIN)/fiprof stalls latest
	$(BIN)/fiprof verdict latest
else
collect: $(BIN)/fiprof
	@$(if $(WORKLOAD_PYTHON),true,$(BIN)/python -c 'import torch, flashinfer, nvtx' 2>/dev/null || { $(call install,.[gpu]); })
	$(BIN)/fiprof collect --kernel prefill $(if $(WORKLOAD_PYTHON),--python $(WORKLOAD_PYTHON))
	$(BIN)/fiprof stalls latest
	$(BIN)/fiprof verdict latest
endif

test: setup ## Run the tests, side by side
	$(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

lint: setup ## Check style and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup ## Check types
	$(BIN)/mypy

soak: setup ## Kill every command at 20 random moments with each signal, damage 2,000 SQLites (4 minutes on 16 cores)
	FIPROF_SOAK=20 FIPROF_SOAK_SQLITE=2000 $(BIN)/python -m pytest -n auto --dist worksteal tests/test_kills.py tests/test_damage.py::test_damage_is_read_as_sqlite_reads_it_or_refused $(PYTEST_ARGS)

check: lint types test ## Everything that must pass before a commit

size: setup ## Lines by room, and how far the commands walk
	$(BIN)/python benchmarks/house.py --walks

bench: setup ## The benchmarks that need no GPU, side by side
	$(BIN)/python benchmarks/parse.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/pack.py

docs: reports ## Build the documentation site into docs/_build, with the reports of the recorded runs
	$(BIN)/python -m sphinx -W -q -t reports -b html -d docs/_build/trees docs docs/_build/html
	@echo docs/_build/html/index.html

reports: setup ## Build the reports of the recorded runs and of the study into docs/reports, from copies of them
	@set -e; copies=$$(mktemp -d); trap 'rm -rf "$$copies"' EXIT; \
	for run in $(wildcard artifacts/recorded/2*); do \
	  name=$$(basename $$run); cp -r $$run $$copies/; rm -rf $$copies/$$name/tables; \
	  $(BIN)/fiprof report $$copies/$$name --out docs/reports/$$name; \
	done; \
	cp -r artifacts/recorded/$(STUDY) $$copies/; \
	$(BIN)/fiprof study flashinfer --quick --results-only --out $$copies/$(STUDY); \
	mkdir -p docs/reports; rm -rf docs/reports/$(STUDY); \
	find $$copies/$(STUDY) -name tables -prune -exec rm -rf {} +; cp -r $$copies/$(STUDY) docs/reports/

pictures: reports ## Take the documentation's pictures anew, in chromium
	$(BIN)/python -m tests.browser

clean: ## Remove what was installed and built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
