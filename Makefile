# The commands that matter: `make run` and `make test`. Both set up .venv first, from pyproject.toml.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PYTEST_ARGS ?= -n auto --dist loadfile --no-loadscope-reorder

python := $(VENV)/bin/python
stamp  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run check test test-rest test-all cocotb formal soak fuzz mutate coverage alu-exhaustive library lint types site reports waves clean setup prerequisites

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(stamp)-run  ## t3 run: one fused sub-layer on the RTL (options: make run ARGS="--model gpt-3 --tp 32")
	@PYTHONDONTWRITEBYTECODE= $(python) -m t3sim.cli run $(ARGS)

check: lint types  ## lint, types, and the tests that compile nothing
	$(python) -m pytest --compile-nothing $(PYTEST_ARGS)

test: setup  ## what each part does (some of it: make test PYTEST_ARGS="tests/rtl -x")
	$(python) -m pytest -m "not slow" $(PYTEST_ARGS)

test-rest: setup  ## what test-all has and test has not
	$(python) -m pytest -m slow $(PYTEST_ARGS)

test-all: setup  ## every test: all of it together, on every geometry
	$(python) -m pytest $(PYTEST_ARGS)

cocotb: setup  ## cocotb testbenches; options: BLOCK=tracker SEED=7 WAVES=vcd|fst SIM=icarus GEOMETRY=least LENGTH=10 ROUNDS=1 TEST=name
	@$(python) -m t3sim.testbenches.run_blocks $(BLOCK) $(if $(SEED),--seed $(SEED)) $(if $(WAVES),--waves $(WAVES:1=vcd)) $(if $(SIM),--sim $(SIM)) \
		$(if $(GEOMETRY),--geometry $(GEOMETRY)) $(if $(LENGTH),--length $(LENGTH)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(TEST),--test $(TEST))

formal: setup  ## proofs of the RTL, and the broken designs that they must catch; options: BLOCK=tracker PROPERTY=counts
	@$(python) -m t3sim.testbenches.formal.prove $(BLOCK) $(if $(PROPERTY),--property "$(PROPERTY)")

soak: setup  ## GPUs with a collective drawn at random, every bit checked; options: MINUTES=10 SEED=N CASES=N
	@$(python) -m t3sim.testbenches.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(CASES),--cases $(CASES))

fuzz: setup  ## Amaranth designs drawn at random: compiled RTL equals Amaranth's simulator and Verilator; options: MINUTES=10 SEED=N CASES=N VERILATOR=25
	@$(python) -m t3sim.testbenches.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(CASES),--cases $(CASES)) $(if $(VERILATOR),--verilator $(VERILATOR))

mutate: setup  ## breaks netlist or source and sees what notices; options: SOURCE=1 BLOCK=tracker COUNT=100 SEED=2 GEOMETRY=wide ONLY="reset|only" TABLE=FILE.csv
	@$(python) -m t3sim.testbenches.mutation.mutate $(BLOCK) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
		$(if $(SOURCE),--source) $(if $(GEOMETRY),--geometry $(GEOMETRY)) $(if $(ONLY),--only "$(ONLY)") \
		$(if $(TABLE),--table $(TABLE))

coverage: setup  ## which situations the testbenches reached, and lines and branches of the Python; option: GEOMETRY=wide
	@$(python) -m t3sim.testbenches.coverage.reached $(if $(GEOMETRY),--geometry $(GEOMETRY))
	$(python) -m pytest $(PYTEST_ARGS) --cov --cov-report=json:build/reports/coverage-python.json -q
	@$(python) -m t3sim.testbenches.coverage.python build/reports/coverage-python.json

alu-exhaustive: setup  ## every one of the 2^32 operand pairs of the near-memory ALU in fp16 (minutes); options: DTYPE=bf16
	$(python) -m t3sim.testbenches.alu_exhaustive $(if $(DTYPE),--dtype $(DTYPE))

library:  ## for `t3 area`: Debian's OSU018 cells (GPL, so not part of this project), into build/library
	@mkdir -p build/library && cd build/library && apt-get download qflow-tech-osu018 && dpkg-deb -x qflow-tech-osu018*.deb .

lint: setup  ## ruff
	$(python) -m ruff check .

types: setup  ## types of the public API and of the compiled functions
	@rm -rf build/types && mkdir -p build/types/t3sim
	@ln -s $(addprefix $(CURDIR)/,$(wildcard sim_models/*) rtl testbenches) build/types/t3sim/
	$(VENV)/bin/basedpyright

waves: setup  ## waveforms of the blocks' pages, from their testbenches, into docs/waves; option: BLOCK=tracker
	@$(python) -m t3sim.testbenches.waveforms $(BLOCK)

reports: setup  ## every paper's evaluation anew (an hour or two), for the site; resumes; option: PAPER=flux
	@for paper in $(or $(PAPER),t3 fused flux dma amped today beyond); do \
		$(python) -m t3sim.cli reproduce --paper $$paper --out docs/reports/$$paper || exit; done

site: setup  ## the documentation as a site, links checked, into build/site
	@$(python) -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

clean:  ## remove builds, caches and .venv
	rm -rf build .venv sim_build *.egg-info .pytest_cache .hypothesis .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

prerequisites:
	@sh scripts/prerequisites.sh '$(PYTHON)'

setup: prerequisites $(stamp)

# Stamps, not the folder: an installation that was interrupted is done again. A run needs a fifth of what tests need,
# and of its modules only some, which Python compiles when they are first imported: it is told to keep them.
$(stamp)-run: pyproject.toml | prerequisites
	@$(call install,.,--no-compile)

$(stamp): pyproject.toml | prerequisites
	@$(call install,.[dev])
	@touch $@-run

define install
	echo "t3: installing into $(VENV) (once; again when pyproject.toml changes)"
	$(python) -m pip --version >/dev/null 2>&1 || '$(PYTHON)' -m venv --clear '$(VENV)'
	$(python) -m pip install --quiet --disable-pip-version-check $(2) --editable '$(1)'
	touch $@
endef
