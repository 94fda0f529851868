# Everything a newcomer and CI run. uv where it is present, the standard library's venv and pip otherwise.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests start many processes: compile each module once, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test ci lint types layers unit suite deadlines cluster torture torture-full bench bench-quick eval docs screenshots clean

demo: $(VENV)/.installed
	@$(BIN)/recollect demo

test: lint types layers unit  # what one runs after every change

ci: lint types layers suite  # what must pass before a change lands

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist loadgroup -m "not torture and not ci"  # on two cores: a third of the time is waiting

suite: $(VENV)/.dev .node/.installed
	TESTS_PROFILE=ci $(BIN)/pytest -n 3 --dist loadgroup -m "not torture"

deadlines: $(VENV)/.dev  # upper bounds on the wall clock: on a quiet machine only
	TESTS_DEADLINES=1 $(BIN)/pytest -n 0 -m "not torture" $$(grep -rl support.timing tests --include='test_*.py')

cluster: $(VENV)/.dev  # builds Citus beside the installed PostgreSQL, or finds it, and runs the tests of a cluster; all it starts ends
	RECOLLECT_TEST_CITUS=$$(tests/cluster/build.sh .cluster) $(BIN)/pytest -n 0 tests/cluster

ALONE := tests/web/test_load.py  # compares times: nothing else may run beside it

torture: $(VENV)/.dev .agents/.installed  # the long forms, under an hour on two cores; writes what was done into docs/guarantees.md
	@rm -f .torture.jsonl
	@tests/cluster/build.sh .cluster || echo "no servers with Citus (tests/cluster/build.sh says what they need): the tests of a cluster are left out"
	@export TORTURE_REPORT=$(CURDIR)/.torture.jsonl; failed=0; \
	$(BIN)/pytest -n 3 --dist loadgroup -m torture --timeout 7200 --durations 25 --ignore $(ALONE) || failed=1; \
	$(BIN)/pytest -n 0 -m torture $(ALONE) || failed=1; \
	$(BIN)/python tests/support/tally.py .torture.jsonl; exit $$failed

torture-full: export TORTURE = full
torture-full: torture  # no test ends before its number of rounds: a little more than an hour

bench: $(VENV)/.dev .bench/.installed  # 10,000, 100,000 and 1,000,000 records beside other systems; writes docs/performance.md
	$(BIN)/python -m benchmarks.speed --write

bench-quick: $(VENV)/.dev .bench/.installed  # 10,000 records; writes nothing into the tree
	$(BIN)/python -m benchmarks.speed --size 10000 --rounds 2 --json .bench/quick.json

eval: $(VENV)/.dev
	$(BIN)/python -m benchmarks.quality --write

screenshots: $(VENV)/.dev
	$(BIN)/python docs/render_screenshots.py

docs: $(VENV)/.dev
	$(BIN)/python docs/render_reference.py
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build

clean:
	rm -rf $(VENV) .bench .node .agents .cluster build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.installed: pyproject.toml
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing $(VENV) && uv pip install --quiet --compile-bytecode --python $(BIN)/python -e . ; \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e . ; fi
	@touch $@

$(VENV)/.dev: pyproject.toml
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing $(VENV) && uv pip install --quiet --compile-bytecode --python $(BIN)/python -e ".[dev]" ; \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" ; fi
	@touch $@ $(VENV)/.installed

.bench/.installed: benchmarks/contenders.txt benchmarks/contenders-torch.txt  # the systems that Recollect is compared with
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --allow-existing .bench; install="uv pip install --quiet --python .bench/bin/python $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS))" ; \
	else $(PYTHON) -m venv .bench; install=".bench/bin/python -m pip install --quiet --disable-pip-version-check" ; fi ; \
	$$install -r benchmarks/contenders.txt && ( $$install -r benchmarks/contenders-torch.txt || \
	echo "no torch for processors on this index: txtai is left out" )
	@touch $@

.node/.installed:  # the MCP conformance suite and inspector, the Node that they need, and what makes the TypeScript client
	@mkdir -p .node
	@if command -v npm >/dev/null 2>&1; then \
	npm install --silent --no-fund --no-audit --prefix .node @modelcontextprotocol/conformance @modelcontextprotocol/inspector node@22 \
	openapi-typescript@7 openapi-fetch typescript@5 @types/node@22 || \
	echo "npm could not install them: their tests are skipped"; fi
	@touch $@

.agents/.installed:  # the agent programs that tests run, 1 GB, and the Node that they need: npm takes older ones for an older Node
	@mkdir -p .agents
	@if command -v npm >/dev/null 2>&1; then npm="npm install --silent --no-fund --no-audit --prefix .agents"; \
	$$npm node@22 && PATH="$(CURDIR)/.agents/node_modules/.bin:$$PATH" $$npm @anthropic-ai/claude-code @openai/codex @google/gemini-cli opencode-ai @opencode-ai/plugin || \
	echo "npm could not install them: their tests are skipped"; fi
	@touch $@
