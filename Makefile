# SPDX-License-Identifier: Apache-2.0
# make demo | test are the two commands of the README; the others are for the person who works on it.
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
PLAIN := .venv-plain
BIN := $(CURDIR)/$(VENV)/bin
export SANDBOX_NATIVE_WERROR := 1
# Without its compiled modules Airflow takes ten seconds to import, not one.
unexport PYTHONDONTWRITEBYTECODE

APT_PACKAGES := gcc libc6-dev make pkg-config libcurl4-openssl-dev zlib1g-dev bubblewrap python3-venv python3-dev
# What only the tests and the linter need: a guest like Alpine, the formatter of the C, a program to run.
DEV_APT_PACKAGES := busybox clang-format-14 git
C_FILES = $(wildcard csrc/*/*.[ch] tests/core/*.[ch])

.PHONY: system dev-system venv build demo test test-core test-unit test-net test-fuzz test-oracles test-airflow test-storage test-parity test-asan test-valgrind test-live toxiproxy versitygw azurite bench lint format lock wheel clean

system:
	@.ci/system-packages $(APT_PACKAGES)

dev-system:
	@.ci/system-packages $(DEV_APT_PACKAGES)

# Both environments, from the locks. A stamp per lock, so a second call does nothing.
venv: system $(VENV)/.stamp $(PLAIN)/.stamp

$(VENV)/.stamp: requirements-dev.lock
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install -q uv==$(UV_VERSION)
	$(VENV)/bin/uv pip install -q --python $(VENV)/bin/python -r requirements-dev.lock
	@touch $@

$(PLAIN)/.stamp: requirements-plain.lock $(VENV)/.stamp
	$(PYTHON) -m venv --clear $(PLAIN)
	$(VENV)/bin/uv pip install -q --python $(PLAIN)/bin/python -r requirements-plain.lock
	@touch $@

# The extension and the guest program in place, seen by both environments.
build: venv $(VENV)/.built

$(VENV)/.built: $(VENV)/.stamp $(PLAIN)/.stamp pyproject.toml setup.py $(wildcard csrc/*/*.[ch])
	$(VENV)/bin/uv pip install -q --python $(VENV)/bin/python --no-deps --no-build-isolation -e .
	$(VENV)/bin/uv pip install -q --python $(PLAIN)/bin/python --no-deps --no-build-isolation -e .
	@touch $@

# Servers of the tests. Built here rather than by the test that needs one, which has a time limit.
toxiproxy versitygw azurite: venv
	@.ci/test-server $@ >/dev/null

# Each stage is a process of its own: whether Airflow is loaded decides which classes the contract has.
test: test-core test-unit test-net test-fuzz test-oracles test-airflow test-storage test-parity

# The C core without Python, under AddressSanitizer and UBSan, allocation failures included.
test-core: system
	$(MAKE) --no-print-directory -C tests/core run

# No Airflow in this environment.
test-unit: build dev-system
	$(CURDIR)/$(PLAIN)/bin/python -m pytest tests/unit tests/faults

# HTTP against scripted servers on loopback.
test-net: build toxiproxy
	$(CURDIR)/$(PLAIN)/bin/python -m pytest tests/net

# The provider as the oracle.
test-fuzz: build
	$(BIN)/python -m pytest tests/fuzz

# The vendors' SDKs and the provider's backends against the test servers, beside ours.
test-oracles: build
	$(BIN)/python -m pytest tests/oracles

test-airflow: build
	$(BIN)/python -m pytest tests/airflow

# Exports to real object stores on loopback.
test-storage: build versitygw azurite
	$(BIN)/python -m pytest tests/storage

# The provider's own behavioural tests, run against this package.
test-parity: build
	tests/parity/run $(BIN)/python

# The unit suite again, with the extension built under AddressSanitizer and UBSan; once, not as both users.
test-asan: build dev-system toxiproxy
	.ci/asan $(CURDIR)/$(PLAIN)/bin/python tests/unit tests/faults tests/net \
		--deselect tests/faults/test_local_ordinary_user.py --ignore tests/net/test_opensandbox_facts.py \
		--ignore tests/net/test_backend_network_faults.py

# Requests of every kind under valgrind's memcheck; slow, so not a part of `test`.
CALLS := 12000
test-valgrind: build
	.ci/soak-valgrind $(CURDIR)/$(PLAIN)/bin/python $(CALLS)

# Against a real OpenSandbox, named by OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY.
test-live: build
	$(BIN)/python -m pytest tests/live

bench: build
	$(BIN)/python tests/bench/run.py

# The wheel, built from the sdist in an environment of its own and tried in a clean one.
wheel: venv
	rm -rf dist build/wheel-trial && mkdir -p build
	SANDBOX_NATIVE_WERROR=0 $(BIN)/python -m build --installer uv
	@tar tzf dist/*.tar.gz | sed 's|^[^/]*/||' | sort >build/sdist.list
	@! git ls-files | sort | comm -23 - build/sdist.list | sed 's|$$| is not in the sdist: MANIFEST.in|' | grep .
	$(PYTHON) -m venv build/wheel-trial
	$(BIN)/uv pip install -q --python build/wheel-trial/bin/python --no-index dist/*.whl
	cd build/wheel-trial && bin/python -I -c "from sandbox_native import output, registry; print(output.format_size(1 << 20)); b = registry.backend('local'); s = b.create(); print(b.run_command(s, 'echo from a wheel', timeout=10, max_output_bytes=100).stdout, end=''); b.destroy(s)"

demo: build
	$(BIN)/python tests/airflow/demo/run.py

lock:
	$(VENV)/bin/uv pip compile -q --no-emit-index-url --no-emit-find-links --no-header --no-annotate --python-version 3.11 requirements-dev.in -o requirements-dev.lock
	$(VENV)/bin/uv pip compile -q --no-emit-index-url --no-emit-find-links --no-header --no-annotate --python-version 3.11 requirements-plain.in -o requirements-plain.lock

lint: build dev-system
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy python/sandbox_native backends
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml sandbox_native._sandbox_native
	@clang-format-14 --dry-run -Werror $(C_FILES)

format: dev-system
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	@clang-format-14 -i $(C_FILES)

clean:
	rm -rf build dist *.egg-info python/*.egg-info python/sandbox_native/*.so python/sandbox_native/_guest $(VENV)/.built
