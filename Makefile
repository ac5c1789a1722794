# Works on a machine that has only make and Python 3.11 or newer. `make help` lists the targets.

PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
READY  := .venv/.installed

.PHONY: help test test-newest verify reproduce bench bench-gpu docs site site-test dist lint format lock clean
.DEFAULT_GOAL := help

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A hundred processes are started by the tests: none should compile Python's sources again.
unexport PYTHONDONTWRITEBYTECODE

PARALLEL := --numprocesses auto --maxprocesses 8 --dist worksteal

test: $(READY) ## run the tests
	$(BIN)/pytest $(PARALLEL)

# The other end of what is supported: the newest Python on the machine, the newest releases of everything. What depends
# on them: laws, native code (which must be taken), stores, the pages.
NEWEST := tests/laws tests/stepcompiler $(patsubst %,tests/unit/%.py,runtime/test_backends\
	$(patsubst %,clusters/test_%,clusters cluster_errors worker_failures)\
	$(patsubst %,store/test_%,kill resume store store_errors)\
	test_combinations test_dependencies numerics/test_doubledouble test_readme)

test-newest: $(READY) ## run the tests of what depends on versions, with the newest of everything
	.ci/newest $(PARALLEL) $(NEWEST)

verify: $(READY) ## run the long studies: orders, drifts, ensembles
	$(BIN)/pytest -m slow $(PARALLEL)

reproduce: $(READY) ## reproduce the results of the paper
	$(BIN)/coadjoint reproduce

bench: .venv-bench/.installed ## time it beside C, numba, diffrax and torchsde; results go to benchmarks/results
	.venv-bench/bin/python benchmarks/run.py

# A Python that has JAX for CUDA; nvcc and diffrax are taken where they are.
GPU_PYTHON ?= python3

bench-gpu: ## time it on a GPU beside CUDA C++, XLA and diffrax; name a Python with JAX for CUDA by GPU_PYTHON=
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu.py

docs: $(READY) ## write the table that is made from the code into docs/reference/methods.md
	$(BIN)/python docs/tables.py

# All numbers and figures are computed here, without the network. The page of the paper is a quick reproduction.
site: .venv-site/.installed ## build the site into site/, with every notebook and picture run anew; check spelling and language
	.venv-site/bin/codespell
	.venv-site/bin/python docs/_ext/language.py
	.venv-site/bin/coadjoint reproduce --quick --out docs/generated/files/reproduction
	rm -rf docs/generated/globe.zarr && .venv-site/bin/coadjoint run docs/globe.toml --out docs/generated/globe.zarr
	.venv-site/bin/coadjoint plot docs/generated/globe.zarr --what globe --out docs/generated/files/globe.html
	.venv-site/bin/python -m sphinx -W --keep-going -q -E -b html -d docs/generated/doctrees docs site
	@rm -rf jupyter_execute
	@echo 'The site is site/index.html.'

site-test: .venv-site/.installed ## look at the built site in headless Chromium: errors, requests, links, pictures, search
	.venv-site/bin/python -m pytest -q -m site tests/site

# What a release uploads, tried as a user would: from an empty environment and another folder.
dist: .venv-site/.installed ## build sdist and wheel, check them, install the wheel into an empty environment and run it there
	rm -rf dist build/user && mkdir -p build/user
	.venv-site/bin/python -m build --outdir dist .
	.venv-site/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/user/env
	build/user/env/bin/python -m pip --disable-pip-version-check --quiet install dist/*.whl
	.venv-site/bin/python .ci/readme-example > build/user/example.py
	cd build/user && env/bin/python example.py
	cd build/user && env/bin/coadjoint new heavy_top > top.toml && env/bin/coadjoint run top.toml && env/bin/coadjoint plot top.zarr
	cd build/user && env/bin/coadjoint reproduce --quick

lint: $(READY) ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(READY) ## put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The oldest Python we support decides, so that what it resolves installs on the newer ones too.
lock: ## resolve requirements.lock anew (needs Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	{ echo 'The lock is resolved on Python 3.11; name one: make lock PYTHON=python3.11' >&2; exit 1; }
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/python -m pip --disable-pip-version-check --quiet install '.[dev]' 'jax==0.10.2'
	{ echo '# All that `make` installs, exactly; written by `make lock`.'; \
	  .lock/bin/python -m pip freeze --exclude coadjoint; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf .lock

clean: ## remove the environment, caches and build products
	rm -rf .venv .venv-bench .venv-newest .venv-site site docs/generated .lock .hypothesis .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml | $(BIN)/pip
	@echo 'Installing into .venv; the first time this takes a few minutes.'
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# The libraries that are compared with are large, and nothing else needs them: they have an environment of their own.
.venv-bench/.installed: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip --disable-pip-version-check --quiet install -r benchmarks/requirements.txt
	.venv-bench/bin/python -m pip --disable-pip-version-check --quiet install --no-build-isolation --editable .
	@touch $@

# So has what builds the site.
.venv-site/.installed: pyproject.toml requirements.lock docs/requirements.txt
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip --disable-pip-version-check --quiet install -r requirements.lock -r docs/requirements.txt
	.venv-site/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo 'coadjoint needs Python 3.11 or newer, and "$(PYTHON)" is not one.' \
	       'Name one: make $(MAKECMDGOALS) PYTHON=python3.11' >&2; exit 1; }
	$(PYTHON) -m venv .venv
