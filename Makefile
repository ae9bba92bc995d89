# Two commands: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow mutants lint format docs wheel lock clean

demo: .venv/installed
	$(BIN)/sensewise demo

test: .venv/installed-dev
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

mutants: .venv/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/mutmut run --max-children 2
	$(BIN)/mutmut results

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What is installed is locked with hashes; torch alone comes from where pip finds it, as the build for this machine.
INSTALL := $(BIN)/python -m pip install --quiet --no-deps

.venv/installed: pyproject.toml lock/run.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --require-hashes --requirement lock/run.txt
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(INSTALL) --no-build-isolation --editable .
	touch $@

.venv/installed-dev: .venv/installed lock/dev.txt
	$(INSTALL) --require-hashes --requirement lock/dev.txt
	touch $@

.venv/installed-docs: .venv/installed lock/docs.txt
	$(INSTALL) --require-hashes --requirement lock/docs.txt
	touch $@

wheel: .venv/installed
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Needs uv. Keeps every version that the locks have; `make lock UPGRADE=--upgrade` looks for newer ones.
COMPILE := uv pip compile --quiet --universal --python-version 3.11.5 --generate-hashes --no-header --no-annotate \
	--override lock/overrides.txt $(UPGRADE) pyproject.toml lock/build.in

lock:
	$(COMPILE) --extra onnx --extra web --output-file lock/run.txt
	$(COMPILE) --extra dev --constraint lock/run.txt --output-file lock/dev.txt
	$(COMPILE) --extra docs --constraint lock/dev.txt --output-file lock/docs.txt

clean:
	rm -rf .venv build dist mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
