# Two commands, each doing all its own set-up; quick the second time.
#   make train   learn to read handwritten digits
#   make test    pass every test

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed
SOURCES = pyproject.toml CMakeLists.txt $(shell find renaissance/runtime/csrc -type f)

.PHONY: train test lint clean

train: $(STAMP)
	$(BIN)/python -m renaissance train digits $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy renaissance

$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build runs
