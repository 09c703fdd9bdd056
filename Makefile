# make demo and make test set everything up themselves: they need Python 3.11 or later and make, nothing else.

SHELL := /bin/sh
.DEFAULT_GOAL := help
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Compiled modules are kept: tests start hundreds of processes, each of which would compile Sonda anew.
export PYTHONDONTWRITEBYTECODE :=

find_python = for candidate in python3 python3.11 python3.12 python3.13 python; do \
	if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	echo "$$candidate"; break; fi; done
PYTHON ?= $(shell $(find_python))
VENV := .venv/bin/python
READY := .venv/ready

.PHONY: help demo test test-again test-quick test-frameworks bench docs package lint format clean

help:
	@echo "make demo             a network training on this CPU: table, verdict, page"
	@echo "make test             all tests (base and PyTorch)"
	@echo "make test-again       the tests that failed the last time, one after the other"
	@echo "make test-quick       the tests that take less than about five seconds each"
	@echo "make test-frameworks  the tests that need TensorFlow, JAX and PyTensor, which it installs"
	@echo "make bench            Sonda against its peers, as ratios measured in one run"
	@echo "make docs             the documentation as a site: build/site/index.html"
	@echo "make package          what is published: a wheel and its source in dist/"
	@echo "make lint             style, types"

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Sonda needs Python 3.11 or later: install it, or say make PYTHON=/path/to/python"; exit 1; }
	@echo "installing Sonda, PyTorch and the tools of its tests into .venv: some minutes, once"
	$(PYTHON) -m venv .venv
	$(VENV) -m pip install --quiet --constraint constraints.txt --editable '.[torch,numba,images,dev]'
	@touch $(READY)

demo: $(READY)
	@$(VENV) -m sonda run resnet34 --train --batch 16 --image 148x112 --channels 1 --classes 9 --tag demo
	@$(VENV) -m sonda report demo --output sonda-demo.html

# Two files at a time: a file's tests share what they set up.
TWO := -n 2 --dist loadfile

test: $(READY)
	$(VENV) -m pytest $(TWO)

# What failed the last time, one after the other: a crowded machine can fail a test that measures.
test-again: $(READY)
	$(VENV) -m pytest --last-failed --last-failed-no-failures none

test-quick: $(READY)
	$(VENV) -m pytest $(TWO) -m "not slow"

test-frameworks: $(READY)
	$(VENV) -m pip install --quiet --constraint constraints.txt --editable '.[tensorflow,jax,pytensor]'
	$(VENV) -m pytest tests/frameworks/installed

bench: $(READY)
	$(VENV) -m benchmarks

docs: $(READY)
	$(VENV) -m mkdocs build --strict
	@echo build/site/index.html

package: $(READY)
	$(VENV) tools/build_package.py dist

lint: $(READY)
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -m mypy

format: $(READY)
	$(VENV) -m ruff check --fix .
	$(VENV) -m ruff format .

clean:
	rm -rf .venv build dist sonda-runs sonda-demo.html
