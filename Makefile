# SPDX-License-Identifier: Apache-2.0
# `make serve` and `make test` work on a fresh clone: they make .venv and install what they need. `make help` lists all.
PYTHON ?= python3
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 8642
PYTEST_ARGS ?=

PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help setup serve test sanitize avx512 lint types user-types bans check clean

help:
	@echo 'make serve    start the service and show one call with its bits (HOST, PORT; Ctrl-C stops it)'
	@echo 'make test     unit, property and service tests; replays recordings where MMAEMU_TRUTH_DIR is set'
	@echo 'make sanitize the compiled kernels under AddressSanitizer and UBSan, against their tests'
	@echo 'make avx512   the AVX-512 kernel by SIMDe (libsimde-dev), against its tests'
	@echo 'make check    what CI runs: lint, types, user-types, bans, test'
	@echo 'make lint     ruff check and ruff format --check'
	@echo 'make types    mypy --strict over the whole tree'
	@echo 'make user-types  pyright over a script that uses the installed package'
	@echo 'make bans     the phrases that tests and tools may not hold'
	@echo 'make setup    only the environment, with everything a developer needs'
	@echo 'make clean    remove the environment and the caches'

# Each stamp is one set of extras, so that the service starts without waiting for the developer's tools.
# Debian splits ensurepip from python3; where it is missing, the pip that is there fills the environment.
$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'mmaemu needs Python 3.11 or newer. Name one: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif $(PYTHON) -c 'import pip, venv' 2>/dev/null; then \
	  $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $@ install -qq pip || { rm -rf $(VENV); exit 1; }; \
	else \
	  echo 'This Python has neither ensurepip nor pip. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; \
	fi

$(VENV)/.server: pyproject.toml constraints.txt | $(PY)
	@echo 'Installing mmaemu and its service into $(VENV) ...'
	@$(INSTALL) '.[server]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(PY)
	@echo 'Installing mmaemu with everything its tests need into $(VENV) (torch is large: minutes) ...'
	@$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.server

setup: $(VENV)/.dev

serve: $(VENV)/.server
	@$(PY) tools/serve_demo.py --host $(HOST) --port $(PORT)

# No GPU is used, even where one is: these tiers say the same everywhere. A file stays on one process, so that the servers
# and wheels that its tests share are made once.
test: $(VENV)/.dev
	CUDA_VISIBLE_DEVICES= $(PY) -m pytest -q -n 2 --dist loadfile -m 'not gpu and not slow and not profile_device' $(PYTEST_ARGS)

# Libraries of their own, outside the package: what is installed stays as it is.
KERNELS := engine/mmaemu/backends/native/*.cpp
KERNEL_FLAGS := -std=c++17 -fPIC -shared -frounding-math -ffp-contract=off
KERNEL_TESTS := tests/test_native.py tests/test_conformance_gemm.py tests/test_conformance_dot.py
CLEAN_PYTEST = $(PY) -m pytest -q -n 2 -p no:cacheprovider $(KERNEL_TESTS) $(PYTEST_ARGS)

sanitize: $(VENV)/.dev
	@mkdir -p build
	$(CXX) $(KERNEL_FLAGS) -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined $(KERNELS) \
	  -o build/kernels-sanitized.so
	MMAEMU_KERNELS=$(abspath build/kernels-sanitized.so) ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  $(CLEAN_PYTEST)

# AVX-512 on a processor without it: its instructions are SIMDe's functions of AVX2 (Debian: apt-get install libsimde-dev).
SIMDE ?= /usr/include
avx512: $(VENV)/.dev
	@test -e $(SIMDE)/simde/x86/avx512.h || { echo 'needs SIMDe: apt-get install libsimde-dev, or SIMDE=FOLDER' >&2; exit 1; }
	@mkdir -p build
	$(CXX) $(KERNEL_FLAGS) -O2 -w -Wno-psabi -mavx2 -mfma -DMMAEMU_SIMDE -isystem $(SIMDE) $(KERNELS) -o build/kernels-simde.so
	MMAEMU_KERNELS=$(abspath build/kernels-simde.so) MMAEMU_NEEDS_KERNEL=avx512 $(CLEAN_PYTEST)

# No cache: it would not notice that a package became ours, which moves imports in files that have not changed.
lint: $(VENV)/.dev
	$(PY) -m ruff check --no-cache .
	$(PY) -m ruff format --no-cache --check .

types: $(VENV)/.dev
	$(PY) -m mypy

# The script runs first: a type checker's word about names that do not work is worth nothing. It is checked away from the
# tree, so that pyright finds mmaemu as a user's project would, through the environment's site-packages.
user-types: $(VENV)/.dev
	$(PY) tests/typing/user_script.py
	@scratch=$$(mktemp -d) && trap 'rm -r "$$scratch"' EXIT && cp tests/typing/* "$$scratch" && \
	  $(PY) -m pyright --project "$$scratch" --pythonpath "$(abspath $(PY))"

# Bit claims go through mmaemu.testing.assert_bitwise_equal: torch's own comparison calls +0 and -0 equal.
bans:
	@! grep -rnF --include='*.py' 'torch.equal(' tests tools || \
	  { echo 'Compare bits with mmaemu.testing.assert_bitwise_equal.' >&2; exit 1; }
	@! grep -rnE --include='*.py' "nan=[\"']mask[\"']" tests tools | grep -v '# nan=mask: [^ ]' || \
	  { echo 'Say on the same line why NaN payloads are ignored: # nan=mask: REASON' >&2; exit 1; }

check: lint types user-types bans test

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
