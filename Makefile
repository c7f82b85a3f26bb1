# Everything lives in .venv; every target works from a bare clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HEAVY := $(VENV)/.installed-heavy
# What JAX has compiled is kept for the next run of the tests.
PYTEST := JAX_COMPILATION_CACHE_DIR=$(abspath $(VENV))/jax-cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
  JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 $(BIN)/pytest --numprocesses 2 --dist worksteal
DOCS := $(VENV)/.installed-docs
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: install demo test quick full packages figures docs lint types clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "robopolicy needs Python 3.11, since PyBullet has no wheel for later ones. Try: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	@echo "Installing into $(VENV), a minute or two"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

demo: $(STAMP)
	@mkdir -p $(dir $(DEMO))
	@echo "1/4  Training a vision policy by evolution strategies"
	@$(BIN)/robopolicy train es --task stepping-stones --attention "angular_hybrid(m=8, n=8)" \
	  --engine mujoco --stop-at 7.5 --seed 0 --out $(DEMO)
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
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --editable '.[browser,docs,ray,rerun,wandb]'
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

# Most of its time would go into compiling well what runs for milliseconds.
quick: $(STAMP)
	XLA_FLAGS="--xla_backend_optimization_level=0 $$XLA_FLAGS" $(PYTEST) -m 'not slow and not full'

# Wheel and sdist, each in an empty environment of its own, with the quick tests.
packages: $(STAMP)
	.ci/packages $(BIN)/python

figures: $(STAMP)
	@for script in $(sort $(filter-out benchmarks/papers/record.py,$(wildcard benchmarks/papers/*.py))); do \
	  $(BIN)/python $$script || exit 1; done

$(DOCS): $(STAMP)
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

# Its makers advertise a successor on every run.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DOCS)
	$(BIN)/mkdocs build --strict

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) dist site
