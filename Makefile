# Everything lives in .venv; every target works from a bare clone.
comma := ,
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
# python3 if it fits, otherwise the newest that does. A name on PATH may be one that does not run.
PYTHON ?= $(shell for one in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$one -c '$(FITS)' > /dev/null 2>&1 && echo $$one && break; done)
# uv is faster than pip, and fetches a Python if there is none. Without it: make UV=
UV ?= $(shell command -v uv 2> /dev/null)
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python,$(BIN)/pip install --quiet \
  --disable-pip-version-check) --constraint constraints.txt --editable
STAMP := $(VENV)/.installed
HEAVY := $(VENV)/.installed-heavy
# What JAX has compiled is kept for the next run of the tests.
PYTEST := JAX_COMPILATION_CACHE_DIR=$(abspath $(VENV))/jax-cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
  JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 $(BIN)/pytest --numprocesses 2 --dist worksteal
DOCS := $(VENV)/.installed-docs
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: install demo test quick full packages cross figures docs lint types clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@[ -n "$(PYTHON)$(UV)" ] \
	  || { echo "robopolicy needs Python 3.11 to 3.14: install one of them, or uv, which fetches one" >&2; exit 2; }
	@[ -z "$(PYTHON)" ] || $(PYTHON) -c '$(FITS)' > /dev/null 2>&1 \
	  || { echo "PYTHON is $(PYTHON): it must be a Python from 3.11 to 3.14" >&2; exit 2; }
	@[ -n "$(UV)" ] || $(PYTHON) -c 'import ensurepip, venv' > /dev/null 2>&1 \
	  || { echo "$(PYTHON) lacks the module ensurepip: install python3-venv (Debian, Ubuntu), or uv" >&2; exit 2; }
	@echo "Installing into $(VENV), a minute or two"
	@rm -rf $(VENV)
	@$(if $(UV),$(UV) venv --quiet --seed --python '$(or $(PYTHON),>=3.11$(comma)<3.15)',$(PYTHON) -m venv) $(VENV)
	@$(INSTALL) '.[all,dev]'
	@touch $@

demo: $(STAMP)
	@mkdir -p $(dir $(DEMO))
	@echo "1/4  Training a vision policy by evolution strategies"
	@$(BIN)/robopolicy train es --task stepping-stones --attention "angular_hybrid(m=8, n=8)" \
	  --stop-at 7.5 --seed 0 --out $(DEMO)
	@echo; echo "2/4  What a step of it costs"
	@$(BIN)/robopolicy flops $(DEMO) --attention "positive_antithetic(m=256)" --attention softmax
	@echo; echo "3/4  Filming it"
	@$(BIN)/robopolicy rollout $(DEMO) --video $(DEMO)/rollout.mp4 --size 640 360
	@echo; echo "4/4  Exporting it"
	@$(BIN)/robopolicy export $(DEMO) --out $(DEMO)/bundle
	@echo; echo "The run     $(DEMO)/              (config.json, metrics.jsonl, tensorboard/, checkpoints/)"
	@echo "The video   $(DEMO)/rollout.mp4"
	@echo "The policy  $(DEMO)/bundle/               (README.md says what is in it, and how a robot runs it)"
	@echo; echo "Next:"
	@echo "  . $(BIN)/activate"
	@echo "  robopolicy evaluate $(DEMO) --episodes 20"
	@echo "  robopolicy deploy $(DEMO)/bundle --robot sim"
	@echo "  robopolicy train es --resume --stop-at None --generations 60 --out $(DEMO)"
	@echo "  tensorboard --logdir runs        (after: pip install tensorboard)"

# Only the tests need these extras, which are as large as half of the rest.
$(HEAVY): $(STAMP)
	@$(INSTALL) '.[browser,docs,lerobot,ray,rerun,unitree,wandb]'
	@if command -v chromium && command -v chromedriver; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get; then \
	  echo "Installing a browser, for the tests of pages" && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver; \
	else false; fi > /dev/null || echo "No browser: the tests of pages in one are skipped" >&2
	@touch $@

test: $(HEAVY) quick
	$(PYTEST) -m slow

# Combinations of parts that the other tests check one by one.
full: $(HEAVY) test
	$(PYTEST) -m full

# Most of its time would go into compiling well what runs for milliseconds. The older emitters compile faster.
quick: $(STAMP)
	XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false $$XLA_FLAGS" \
	  $(PYTEST) -m 'not slow and not full'

# Wheel and sdist install the same files; those of the wheel pass the quick tests in an empty environment.
packages: $(STAMP)
	.ci/packages $(BIN)/python

# The policy of a bundle as C, with every compiler and emulator that is installed: all must compute the same bits.
cross: $(STAMP)
	$(BIN)/python benchmarks/controllers.py

figures: $(STAMP)
	@for script in $(sort $(filter-out benchmarks/papers/record.py,$(wildcard benchmarks/papers/*.py))); do \
	  $(BIN)/python $$script || exit 1; done

$(DOCS): $(STAMP)
	@$(INSTALL) '.[docs]'
	@touch $@

# Its makers advertise a successor on every run.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DOCS)
	$(BIN)/mkdocs build --strict

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Scripts have few annotations, so in them mypy checks names and calls alone.
SCRIPTS := $(wildcard benchmarks/*.py benchmarks/papers/*.py examples/*.py)
LOOSE := $(addprefix --disable-error-code=,arg-type assignment attr-defined call-overload list-item return-value \
  union-attr var-annotated)
types: $(STAMP)
	$(BIN)/mypy
	MYPYPATH=benchmarks:benchmarks/papers $(BIN)/mypy --allow-untyped-defs --allow-incomplete-defs $(LOOSE) $(SCRIPTS)

clean:
	rm -rf $(VENV) dist site
