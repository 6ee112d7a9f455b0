# `make demo`, `make test`, `make bench` and `make docs-test` need Python 3.10 or newer and nothing else:
# each makes .venv, installs the package there with the extras that it needs, and runs.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null \
	&& echo $$python && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
RECORD_KERNELS = -p tests.cross_compile.plugin --record-kernels=$(KERNELS)
PYTEST_ARGS ?= -n 2 --dist worksteal --durations 25

.DEFAULT_GOAL := help
.PHONY: help demo test test-genesis test-slow test-vulkan test-vulkan-all test-cuda test-compile-for test-arm64 docs-test docs-site lint bench bench-gpu docs clean

help:  ## what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | \
	while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done

demo: $(VENV)/stamp-demo  ## fit a differential equation to measured data by its exact gradient
	@$(RUN) -m octants demo lynx-hare $(DEMO_ARGS)

test: $(VENV)/stamp-test $(VENV)/stamp-demo  ## run the tests
	@$(if $(RECORD),OCTANTS_OPT_LEVEL=2) $(RUN) -m pytest $(PYTEST_ARGS) $(if $(RECORD),$(RECORD_KERNELS)) $(TESTS)

test-slow: $(VENV)/stamp-test  ## run more tests of the same kind, for more than half an hour
	@OCTANTS_OPT_LEVEL=2 $(RUN) -m pytest $(PYTEST_ARGS) -m slow

VULKAN_TESTS ?= tests/ad tests/api tests/data tests/frontend tests/library tests/simt tests/vulkan \
	tests/fuzz/test_fuzz_run.py

test-vulkan: $(VENV)/stamp-test  ## run the tests of kernels and gradients on Vulkan, and random programs
	@OCTANTS_ARCH=vulkan OCTANTS_TEST_ARCH=vulkan $(RUN) -m pytest $(PYTEST_ARGS) $(VULKAN_TESTS)

CUDA_TESTS ?= tests/ad/test_tape.py tests/ad/test_programs.py tests/library/test_algorithms.py tests/simt \
	tests/fuzz/test_fuzz_run.py

test-cuda: $(VENV)/stamp-test  ## run tests of kernels and gradients on CUDA, emulated where there is no GPU
	@OCTANTS_ARCH=cuda OCTANTS_TEST_ARCH=cuda $(RUN) -m pytest $(PYTEST_ARGS) $(CUDA_TESTS)

# Kernels of tests, compiled for GPUs that are not at hand (tests/cross_compile). KERNELS is a folder in
# which `make test RECORD=1` has put them; without one, the tests of kernels run first. With
# COMPILE_SECONDS, no kernel is begun after that time; what is left out is another part for each COMPILE_TURN, by default the commit.
COMPILE_FOR ?= gfx942,gfx1100,metal
COMPILE_TESTS ?= $(filter-out tests/vulkan tests/fuzz/test_fuzz_run.py,$(VULKAN_TESTS)) tests/simplify \
	tests/examples tests/graphs tests/compat tests/linalg tests/mathlib tests/names tests/passes
KERNELS ?= $(VENV)/kernels

test-compile-for: $(VENV)/stamp-test  ## compile the kernels of the tests for GPUs that are not at hand
	@test -e $(KERNELS) || $(MAKE) --no-print-directory test RECORD=1 TESTS="$(COMPILE_TESTS)"
	@$(RUN) -m tests.cross_compile.compile $(KERNELS) --for $(COMPILE_FOR) \
		--seconds $(or $(COMPILE_SECONDS),0) --turn "$(or $(COMPILE_TURN),$$(git rev-parse HEAD 2>/dev/null))"

# Each takes less than ten minutes. The rest of tests/ is about what the CPU runs, or about no device.
VULKAN_PARTS ?= "tests/ad" "tests/api tests/data tests/frontend tests/library tests/simt" \
	"tests/vulkan tests/fuzz/test_fuzz_run.py" "tests/cache tests/graphs tests/names tests/runtime" \
	"tests/passes tests/test_docs.py tests/test_demo.py" "tests/fuzz/test_generated_programs.py" \
	"tests/fuzz/test_comparison.py tests/fuzz/test_oracle_by_hand.py" "tests/fuzz/test_mutations.py"

test-vulkan-all: $(VENV)/stamp-test $(VENV)/stamp-demo  ## run all tests that can run on Vulkan, in parts
	@failed=0; for part in $(VULKAN_PARTS); do echo "== $$part"; \
	$(MAKE) --no-print-directory test-vulkan VULKAN_TESTS="$$part" || failed=1; done; exit $$failed

ARM64_TESTS ?= tests/mathlib/test_same_bits.py tests/codegen/test_scalar_operations.py \
	tests/codegen/test_rsqrt_estimates.py tests/codegen/test_records.py tests/codegen/test_reductions.py \
	tests/codegen/test_narrow_stores.py tests/codegen/test_object_files.py \
	tests/cache/test_processes.py tests/api/test_kernels.py tests/ad/test_programs.py tests/ad/test_tape.py \
	tests/ad/test_forward_mode.py

# What qemu tells of the pages of a process is not true.
test-arm64: $(VENV)/stamp-test  ## run tests of kernels and gradients on an arm64 that qemu emulates (Debian)
	@RUN=$(RUN) scripts/arm64.sh $(PYTEST_ARGS) $(ARM64_TESTS) \
		--deselect tests/codegen/test_object_files.py::test_no_page_can_be_written_and_executed

# Genesis requires Quadrants and much else, so it has a virtual environment of its own.
test-genesis:  ## run scenes of Genesis on Octants and on Quadrants, and compare the numbers
	@$(MAKE) --no-print-directory VENV=.venv-genesis .venv-genesis/stamp-genesis || \
		echo "skipped: Genesis cannot be installed here (.venv-genesis/install.log)"
	@! test -e .venv-genesis/stamp-genesis || .venv-genesis/bin/python bench/genesis_scenes.py \
		--numbers --cache .venv-genesis/cache $(GENESIS_ARGS)

docs-test: $(VENV)/stamp-test $(VENV)/stamp-demo  ## run the code of the README and of docs/
	@$(RUN) -m pytest tests/test_docs.py

docs-site: $(VENV)/stamp-docs  ## write the site of the documentation to build/site
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict
	@echo build/site/index.html

lint: $(VENV)/stamp-test  ## ruff and mypy, also of tests and benchmarks
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/mypy
	@$(RUN) scripts/types_of_tests.py

bench: $(VENV)/stamp-bench  ## compare speed with other systems and with C by hand
	@$(RUN) bench/run.py $(BENCH_ARGS)

bench-gpu: $(VENV)/stamp-bench  ## compare speed on an NVIDIA GPU with other systems and with CUDA by hand
	@$(RUN) bench/gpu.py $(BENCH_ARGS)

docs: $(VENV)/stamp-base  ## write docs/api.md anew from the docstrings
	@$(RUN) scripts/api_reference.py docs/api.md

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) .venv-genesis build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The package is installed in place, so that only a change of what it requires installs it again.
$(VENV)/stamp-base:
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed; set PYTHON=..." >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/stamp-%: $(VENV)/stamp-base pyproject.toml
	@printf 'installing octants[$*] and what it needs '
	@$(RUN) -m pip install --disable-pip-version-check --editable '.[$*]' \
		>$(VENV)/install.log 2>&1 & installer=$$!; \
	while kill -0 $$installer 2>/dev/null; do printf .; sleep 1; done; echo; \
	wait $$installer || { cat $(VENV)/install.log >&2; exit 1; }
	@touch $@
