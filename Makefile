# Two commands matter: `make lab` and `make test`. Every other target is one line of `make help`.
# All paths are relative, so the checkout may lie in a folder with spaces in its name.

LAB_ARGS ?=
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PY := .venv/bin/python
MADE := .venv/made-in
NEEDED_MB := 1500
# Two workers share the tests. The cells of a notebook share a kernel, so they stay with one worker.
# Two and not one per core: that is the machine on which the time limits have been tried.
WORKERS ?= 2
PYTEST = $(PY) -m pytest -p tests.quick_imports
TESTS = $(PYTEST) -n $(WORKERS) --dist worksteal
BROWSER = $(PYTEST) -m proof --durations=5
NBVAL = $(PYTEST) -n $(WORKERS) --dist loadfile --nbval --nbval-current-env --nbval-cell-timeout=60 notebooks

.PHONY: help lab test proof browser check lint notebooks controls bench clean
.NOTPARALLEL:

help:
	@echo "make lab        build .venv, make your workbook, open JupyterLab (LAB_ARGS=--no-browser on a server)"
	@echo "make test       every kind of test once, reduced counts"
	@echo "make proof      the full sweeps, controls, the notebooks three times, and make browser"
	@echo "make browser    JupyterLab in Chromium: each notebook is legible, the panels work (three times)"
	@echo "make check      lint, types, then make test"
	@echo "make notebooks  run the original notebooks again and store their outputs"
	@echo "make controls   break the code on purpose, one line at a time: each named test must go red"
	@echo "make bench      the table of speeds (peers when installed: pip install -e '.[bench]')"
	@echo "make clean      remove .venv and caches; never your workbook or progress"

# A virtual environment does not survive a move: its scripts and the editable install name the old folder.
ifneq "$(shell cat $(MADE) 2>/dev/null)" "$(CURDIR)"
.PHONY: $(MADE)
endif

$(MADE): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed and not found; install it, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@test -x $(PY) || test "$$(df -Pm . | awk 'NR==2 {print $$4}')" -ge $(NEEDED_MB) || { echo "make: less than $(NEEDED_MB) MB free on this disk; free some and try again"; exit 1; }
	@echo "make: building .venv with $(PYTHON); pip downloads about 300 MB the first time, one to two minutes without a word"
	@test "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" && test -x $(PY) || "$(PYTHON)" -m venv --clear .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,chaos]' \
		|| { echo "make: pip could not install the packages; its message stands above"; exit 1; }
	@pwd > $@

# An environment may forbid Python to keep what it compiled; then every agent and every test session starts slowly.
unexport PYTHONDONTWRITEBYTECODE
COMPILE = $(PY) -m compileall -q labkit

lab: $(MADE)
	@$(COMPILE)
	@echo "make: copying the notebooks into workbook/"
	@$(PY) -m labkit open
	@if [ "$$(id -u)" = 0 ]; then echo "make: running as root, so JupyterLab gets --allow-root"; fi
	@echo "make: starting JupyterLab; Ctrl-C twice stops it"
	@root=; [ "$$(id -u)" = 0 ] && root=--allow-root; cd workbook && \
		PATH="$(CURDIR)/.venv/bin:$$PATH" JUPYTER_CONFIG_PATH="$(CURDIR)/.jupyter" exec ../$(PY) -m jupyterlab $$root \
		--log-level=WARN --LabApp.workspaces_dir="$(CURDIR)/.lab/jupyterlab/workspaces" \
		--LabApp.user_settings_dir="$(CURDIR)/.lab/jupyterlab/settings" --LabApp.default_url=/lab/tree/00-start-here.ipynb $(LAB_ARGS)

test: $(MADE)
	@$(COMPILE)
	@echo "make: tests of the package and of the notebooks' form"
	@$(TESTS)
	@echo "make: running every notebook and comparing every stored output"
	@$(NBVAL)

proof: $(MADE) lint controls
	@echo "make: full sweeps"
	@$(PYTEST) -m proof --ignore=tests/browser
	@echo "make: every notebook, three times"
	@$(NBVAL) && $(NBVAL) && $(NBVAL)
	@$(MAKE) --no-print-directory browser

# Processes of their own: Playwright's loop stays in the thread that runs the tests. What stands still
# is looked at once; what works with live processes is tried three times, each with a fresh JupyterLab.
PANELS = $(addprefix tests/browser/test_,instructor.py explorer.py matrix.py)

browser: $(MADE)
	@$(COMPILE)
	@echo "make: every notebook in JupyterLab, light and dark; the controls of these tests"
	@$(BROWSER) tests/browser $(addprefix --ignore=,$(PANELS))
	@for time in first second third; do echo "make: the panels in JupyterLab, the $$time time"; \
		$(BROWSER) $(PANELS) || exit 1; done

check: lint test

lint: $(MADE)
	@echo "make: lint and types"
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

notebooks: $(MADE)
	@echo "make: running the originals and storing their outputs"
	@$(PY) -m labkit.lab.regenerate
	@echo "make: drawing the README's picture from a real kill"
	@$(PY) -m labkit.lab.readme
	@echo "make: photographing the README's panel in a real JupyterLab"
	@$(PY) -m tests.browser.picture

controls: $(MADE)
	@echo "make: each control must turn its test red"
	@$(PY) tests/controls.py

bench: $(MADE)
	@$(COMPILE)
	@$(PY) -m bench

clean:
	@echo "make: removing .venv and caches"
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
