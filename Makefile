# Everything a newcomer and CI run. uv where it is present, the standard library's venv and pip otherwise.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint types layers unit torture bench eval docs screenshots clean

demo: $(VENV)/.installed
	@$(BIN)/recollect demo

test: lint types layers unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist loadgroup -m "not torture"  # on two cores: a third of the time is waiting

torture: $(VENV)/.dev
	$(BIN)/pytest -m torture -s --timeout 3600

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed

eval: $(VENV)/.dev
	$(BIN)/python -m benchmarks.quality --write

screenshots: $(VENV)/.dev
	$(BIN)/python docs/render_screenshots.py

docs: $(VENV)/.dev
	$(BIN)/python docs/render_reference.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: pyproject.toml
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing $(VENV) && uv pip install --quiet --python $(BIN)/python -e . ; \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e . ; fi
	@touch $@

$(VENV)/.dev: pyproject.toml
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing $(VENV) && uv pip install --quiet --python $(BIN)/python -e ".[dev]" ; \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" ; fi
	@touch $@ $(VENV)/.installed
