# Every command makes the virtual environment that it needs; nothing else has to be installed by hand
# but Python 3.11 or newer and Java 17 or newer.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
CLASSES := $(VENV)/classes.jsa
DOCS   := $(VENV)/docs
AT     ?= 2013-02-08 12:00
TIER   ?= test

# Where `make lab` listens, and what else JupyterLab is told; `IP=0.0.0.0` is for inside a container only.
IP     ?= 127.0.0.1
LAB    ?=

# uv takes a third of pip's time.  It does not read pip's settings: it is told the index, so that it asks no
# other one than pip would, and where it does not get on, pip has its turn.
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INDEX    = $$($(BIN)/python -m pip config list | sed -n "s/^.*\.index-url='\(.*\)'$$/\1/p" | tail -n 1)
install  = { UV_DEFAULT_INDEX="$(INDEX)" $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) $(1) ; }

# Two at a time, in the order that tools/tiers.py chooses: the files that take minutes first.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Spark starts faster from an archive of its classes, where there is one: the first demo makes it when it has
# shown its board, so that nobody waits a minute longer for the first answer.
ARCHIVED = SPARK_SUBMIT_OPTS="$$SPARK_SUBMIT_OPTS $$($(BIN)/python -m tools.classes options)"

# Jupyter does not start for root unless told to; in a container there may be nobody else.
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)

# Jupyter keeps its settings and history inside the environment, and PySpark finds its interpreter there.
export JUPYTER_CONFIG_DIR := $(CURDIR)/$(VENV)/jupyter/config
export JUPYTER_DATA_DIR := $(CURDIR)/$(VENV)/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CURDIR)/$(VENV)/jupyter/runtime
export IPYTHONDIR := $(CURDIR)/$(VENV)/ipython
# JupyterLab shows a page of text as it is meant, and not its source: the index of the notebooks is one.
export JUPYTER_CONFIG_PATH := $(CURDIR)/tools/jupyter
export TZ := UTC

.PHONY: help demo quick test full touched all-tests soak compat lab bench bench-peers notebooks docs samples lint style types count pins clean

help: ## Say what can be done here
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY) ## Read the departure board as it stood at an instant: make demo AT="2013-02-08 18:00"
	@$(ARCHIVED) $(BIN)/python -m tools.demo "$(AT)"
	@$(MAKE) --no-print-directory $(CLASSES)

quick: $(READY) lint ## Lint, types, the tests that need no JVM, and a smoke test of each door (under 3 minutes)
	$(PYTEST) --tier quick tests

test: $(READY) style ## Lint, types, every rule once, examples in docstrings, and most notebooks (a quarter of an hour)
	@$(MAKE) --no-print-directory --jobs=2 types all-tests

full: ## The same with all tests but the random ones, and how long they took: after a change to many packages
	@begun=$$(date +%s) ; $(MAKE) --no-print-directory test TIER=full && echo "full: $$(($$(date +%s) - begun)) s"

touched: $(READY) lint ## What differs from main, tried whole with all that depends on it: before you send it
	$(BIN)/python -m tools.touched $(SINCE)

# Beside `types`, which uses one core alone.
all-tests: $(READY)
	$(PYTEST) --tier $(TIER)
	$(PYTEST) --tier $(TIER) --nbval -o testpaths=notebooks notebooks

soak: $(READY) ## The long tests, and fresh random ones (up to an hour): make soak SEED=1234 repeats one
	$(PYTEST) --tier soak $(if $(SEED),--soak-seed $(SEED)) tests

lint: style types ## Style and types only

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

count: $(READY) ## Modules, lines, names and what `import cdckit` costs; make count SINCE=main says what was not only moved
	$(BIN)/python -m tools.counts $(SINCE)

compat: $(READY) ## A plain install of the wheel, with the oldest and with the newest versions allowed
	$(BIN)/python -m tools.compat

lab: $(READY) $(CLASSES) ## Open JupyterLab on the notebooks, at their index
	$(ARCHIVED) $(BIN)/jupyter lab --ip=$(IP) --notebook-dir=notebooks \
	  --LabApp.default_url=/lab/tree/README.md $(AS_ROOT) $(LAB)

bench: $(READY) ## Measure: ratios within one run, into benchmarks/results.json and docs/limits.md (some two hours)
	$(BIN)/python -m benchmarks

bench-peers: $(READY) ## The same feed through dbt, dlt, Delta's MERGE and others, each in an environment of its own
	$(BIN)/python -m benchmarks.peers

notebooks: $(READY) ## Execute every notebook and write its outputs back, and their index
	$(BIN)/python -m tools.notebooks
	$(BIN)/python -m tools.notebook_index

docs: $(DOCS) ## Build the site, its links checked, to be opened from build/docs/html/index.html
	$(BIN)/python -m tools.site

samples: $(READY) ## Make data/samples anew from what says what happens in them
	$(BIN)/python -m tools.samples

pins: $(READY) ## Choose the newest allowed versions anew and write requirements.txt
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --upgrade \
	  --constraint constraints.txt --no-emit-index-url --no-emit-find-links --no-header --quiet -o requirements.txt
	$(BIN)/uv pip compile --group docs --universal --python-version 3.11 --upgrade \
	  --constraint requirements.txt --no-emit-index-url --no-emit-find-links --no-header --quiet -o docs/requirements.txt

clean: ## Remove the virtual environment and what tools left behind (not benchmarks/work)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse build *.egg-info

$(READY): requirements.txt pyproject.toml tools/check_machine.py
	@$(PYTHON) tools/check_machine.py
	@echo "Installing into $(VENV) (a few minutes, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@{ $(PIP) uv ; $(call install,-r requirements.txt) && $(call install,--no-deps --editable .) ; } \
	  > $(VENV)/install.log 2>&1 || $(PYTHON) tools/check_machine.py network
	@touch $@

# Only for the site: the other commands neither need these packages nor wait for them.
$(DOCS): docs/requirements.txt $(READY)
	@$(call install,-r docs/requirements.txt)
	@touch $@

$(CLASSES): $(READY)
	@$(BIN)/python -m tools.classes
