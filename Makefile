.DEFAULT_GOAL := help
PYTHON ?= .venv/bin/python
.PHONY: help install test fuzz coverage mutants lint types audit docs figures benchmarks wheel lowest pythons check clean

help: ## list these tasks
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: ## make .venv with everything that development needs
	python3 -m venv .venv && $(PYTHON) -m pip install -e '.[test,dev]'

test: ## run the suite
	$(PYTHON) -m pytest

fuzz: ## give every parser 100,000 inputs and every option all words, for a night
	FUZZ_INPUTS=100000 $(PYTHON) -m pytest tests/test_fuzz.py

coverage: ## run the suite and tell which branches of calc/ it leaves out
	$(PYTHON) -m coverage erase
	$(PYTHON) -m coverage run -m pytest
	$(PYTHON) -m coverage combine -q && $(PYTHON) -m coverage report

lint: ## check style and spelling
	$(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m codespell_lib

types: ## check types (the link tree gives the folders their installed name)
	mkdir -p build/typing/rooflm
	ln -sfn ../../../calc ../../../plots ../../../validate ../../../tests build/typing/rooflm/
	$(PYTHON) -m pyright --pythonpath $(PYTHON)

audit: ## look for broken requirements, and known vulnerabilities of what is installed
	$(PYTHON) -m pip check
	$(PYTHON) -m pip_audit --skip-editable --progress-spinner off

docs: ## regenerate transcripts and references from the program
	$(PYTHON) docs/transcript.py
	$(PYTHON) -m cogapp -P -r -I docs $$(grep -l '\[\[\[cog' README.md docs/*.md)

figures: ## draw the gallery and the figures of the README again
	$(PYTHON) docs/gallery.py

benchmarks: ## measure the speed budgets into docs/benchmarks.md
	$(PYTHON) benchmarks/run.py > docs/benchmarks.md

MODULES = attention mla experts model memory timing

mutants: ## change formulas one at a time and list what no test notices: make mutants MODULES="mla cost"
	$(PYTHON) benchmarks/mutants.py $(MODULES)

# What a wheel may lack is files and entry points; the rest of the suite has run on the checkout.
WHEEL_TESTS = accuracy cli lecture models hardware zoo weight_files validate

wheel: ## build the wheel and run the tests of commands and files against it, away from the checkout
	rm -rf build/lib build/wheel dist
	$(PYTHON) -m build --outdir dist .
	python3 -m venv build/wheel
	build/wheel/bin/pip install -q "$$(echo dist/*.whl)[test]"
	cp -r tests build/wheel/tests
	build/wheel/bin/rooflm report studies/batch_sweep.yaml --quiet -o build/wheel/page.html
	cd build/wheel && bin/python -m pytest -q -p no:cacheprovider $(WHEEL_TESTS:%=tests/test_%.py)

# Tests of the calculator alone, which need neither torch nor transformers.
CALC_TESTS = $(patsubst %,tests/test_%.py,cli lecture hardware explain solve study figures)
CALC_NEEDS = pytest hypothesis pytest-xdist jsonschema

# Oldest versions warn of the newer ones beneath them, so that warnings are no errors here.
lowest: ## run the calculator's tests with the oldest versions that pyproject.toml allows
	rm -rf build/lib build/lowest
	python3 -m venv build/lowest
	python3 -c 'import re, tomllib; of = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	more = of["optional-dependencies"]; needs = of["dependencies"] + more["parquet"] + more["gguf"]; \
	print(*(re.sub(">=([0-9.]+).*", r"==\1", need) for need in needs), sep="\n")' > build/lowest/versions.txt
	build/lowest/bin/pip install -q -c build/lowest/versions.txt '.[parquet,gguf]' $(CALC_NEEDS)
	build/lowest/bin/python -m pytest -q -p no:cacheprovider -W default $(CALC_TESTS)

PYTHONS = 3.12 3.13

pythons: ## run them with other versions of Python, where those are installed
	rm -rf build/lib
	for version in $(PYTHONS); do \
		python=python$$version; home=build/$$python; \
		$$python -c '' 2> /dev/null || { echo "$$python is not installed here" >&2; continue; }; \
		rm -rf $$home && $$python -m venv $$home && \
		$$home/bin/pip install -q '.[parquet,gguf]' $(CALC_NEEDS) && \
		$$home/bin/python -m pytest -q -p no:cacheprovider $(CALC_TESTS) || exit 1; \
	done

check: lint types test wheel lowest audit ## everything that continuous integration runs

clean: ## remove what these tasks made
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .coverage*
