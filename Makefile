# The commands of this project; `make` alone lists them. Python 3.11 or newer and make are all they need.

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV_VERSION := 0.13.7
OLDEST := 3.11
NEWEST := 3.13
CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3.13 python3)

# An interpreter counts only when it really runs: the shim of a version manager exists and yet fails.
is_new_enough := -c 'import sys; sys.exit("%d.%02d" % sys.version_info[:2] < "$(OLDEST)")' 2>/dev/null
version_of := -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null

# Byte code is written, whatever the shell says: without it every start takes three times as long, and tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test fast soak stress check lint types format docs bench lock clean

help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  ARGS="…" adds words to a command, PYTHON=… chooses the interpreter.'

run: $(READY) ## Start the service with config.toml
	@exec $(BIN)/cormorant run $(ARGS)

# Two at once: half of the tests wait for processes and sockets. Files stay together, so that each finds its server started.
SPREAD := -n 2 --dist loadfile

test: $(READY) ## Run all tests and doctests
	$(BIN)/python -m pytest $(SPREAD) $(ARGS)

fast: $(READY) ## Run the tests that take no time
	$(BIN)/python -m pytest $(SPREAD) -m 'not slow' $(ARGS)

soak: $(READY) ## Run the long tests: real processes killed, frozen and cut off
	SOAK=1 $(BIN)/python -m pytest tests/chaos $(ARGS)

# The loops end with this shell, also when it is killed: each asks every hundred thousand rounds whether its parent lives.
BUSY_LOOP := while kill -0 $$PPID 2>/dev/null; do i=0; while [ $$i -lt 100000 ]; do i=$$((i+1)); done; done

stress: $(READY) ## Run all tests beside three busy loops per core (ARGS="tests/web": a folder of them)
	@loops=; trap 'kill $$loops' EXIT; trap 'exit 1' INT TERM; \
	for _ in $$(seq $$((3 * $$(getconf _NPROCESSORS_ONLN)))); do sh -c '$(BUSY_LOOP)' & loops="$$loops $$!"; done; \
	$(BIN)/python -m pytest $(SPREAD) $(or $(ARGS),tests tests/chaos cormorant/clients cormorant/rules)

check: lint types test ## Do what CI does: lint, types, all tests, and those that take no time on the other Python
	@own=$$($(BIN)/python $(version_of)); \
	for version in $(OLDEST) $(NEWEST); do \
	  if [ "$$version" = "$$own" ]; then continue; fi; \
	  found=; \
	  for python in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	    if [ "$$("$$python" $(version_of))" = "$$version" ]; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "Python $$version is not installed here: its tests did not run."; continue; fi; \
	  echo "Python $$version: $$found"; \
	  $(MAKE) --no-print-directory fast VENV=.venv-$$version PYTHON="$$found" || exit 1; \
	done

lint: $(READY) ## Look for style and mistakes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY) ## Check the types for the oldest and the newest Python
	$(BIN)/mypy --python-version $(OLDEST)
	$(BIN)/mypy --python-version $(NEWEST)

format: $(READY) ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## Write the pages of settings, events, metrics and actors anew
	$(BIN)/python -m cormorant.settings > docs/settings.md
	$(BIN)/python -m cormorant.log > docs/events.md
	$(BIN)/python -m cormorant.reference > docs/metrics.md
	$(BIN)/python -m tests.architecture

bench: $(READY) ## Run every benchmark and write bench/RESULTS.md (ARGS=--quick: a look, not kept)
	$(BIN)/python bench $(ARGS)

lock: $(BIN)/uv ## Pin the dependencies anew (ARGS=--upgrade takes newer ones)
	$(BIN)/uv pip compile --quiet --universal --python-version $(OLDEST) --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --extra dev --extra postgres --output-file requirements.lock $(ARGS) pyproject.toml

clean: ## Remove environments and caches; data/ stays
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp makes a second run free. `uv pip sync` also removes what the lock no longer names.
$(READY): $(BIN)/uv requirements.lock pyproject.toml
	@echo "Installing into $(VENV) what requirements.lock names"
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/uv pip check --quiet --python $(BIN)/python || { echo "requirements.lock does not fit pyproject.toml: make lock"; exit 1; }
	@touch $@

# The environment was made with another Python than the one asked for now: it is made anew.
ifneq ($(PYTHON),)
ifneq ($(shell "$(PYTHON)" $(version_of)),$(shell $(BIN)/python $(version_of)))
.PHONY: $(BIN)/uv
endif
endif

$(BIN)/uv:
	@found=; old=; \
	for python in $(CANDIDATES); do \
	  if "$$python" $(is_new_enough); then found=$$python; break; fi; \
	  if version=$$("$$python" $(version_of)); then old="$$old $$python is Python $$version."; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "No usable Python:$${old:- none of $(CANDIDATES) runs.}"; \
	  echo "Cormorant needs Python $(OLDEST) or newer: install it (Debian: apt-get install python3 python3-venv)"; \
	  echo "or name one: make PYTHON=/path/to/python3"; \
	  exit 1; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$found has no venv module. Debian: apt-get install python$$("$$found" $(version_of))-venv"; \
	  exit 1; \
	fi; \
	echo "Making $(VENV) with $$found"; \
	"$$found" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check uv==$(UV_VERSION)
