# make demo | make test | make test-cpus: each sets up what it needs, in .venv, the first time and again.
# make man writes the man page that `man octavo` finds while .venv is active.
# test-cpus runs the kernels' tests as on lesser CPUs than this one (tests/helpers/other_cpus.py names them).
# test-arm runs one case of each kernel's test, and a tiny model, as on ARM, under emulation; test-arm-short runs a few.
# compile-times measures how long kernels compile on an empty kernel cache: seven minutes on 2 cores.
# test-drop-in runs llama-cpp-python's own tests with octavo.Llama in the place of llama_cpp.Llama.
# test-templates compares prompts with what the chat templates of 70 real models give, from llama-cpp-python's archive.
# test-llama-server runs the tests of llama.cpp's server against octavo's, on tiny models: seven minutes on 2 cores.
# test-lm-eval compares what lm-eval measures through the server with what llama-cpp-python computes by itself.
# test-clients runs clients of other projects against the server (Claude Code, Codex, aider, LangChain, the AI SDK and others; it needs npm).
# try-readme runs the commands of README.md, top to bottom, from a clean clone, in a folder that it makes: half an hour.
# test-reliability tries all the faults that docs/reliability.md counts, and writes that page. It takes half an hour on 2 cores.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := examples/encyclopedia.md

.PHONY: demo test test-all test-plain test-cpus test-arm test-arm-short test-drop-in test-templates test-llama-server test-lm-eval test-clients test-reliability try-readme bench compile-times man lint rebuild-llama.cpp clean

QUESTION ?= What is the name of the latest epoch?

demo: $(VENV)/ready
	$(BIN)/octavo index $(DEMO)
	$(BIN)/octavo ask $(DEMO) "$(QUESTION)" --temp 0
	@echo
	@echo "octavo is installed in $(VENV). To call it by its name in this shell, run: . $(BIN)/activate"
	@echo "Or call it by its path, from anywhere: $(abspath $(BIN))/octavo chat report.pdf"

# Tests run in so many processes, of up to 2 GB. Threads that spin while they wait would take the cores from each other,
# and so would those that each process has for NumPy's products.
PROCESSES ?= 2
# Some start octavo, which is faster where Python may keep what it compiled.
PYTEST = env -u PYTHONDONTWRITEBYTECODE OMP_WAIT_POLICY=PASSIVE OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest \
	-n $(PROCESSES) --dist worksteal

# Of tests with many cases this draws a few: SEED draws others, and test-all runs them all, each night.
CASES ?= 2
SEED  ?= 0

test: $(VENV)/dev
	$(PYTEST) -m "not slow" --timeout=300 --cases=$(CASES) --case-seed=$(SEED)

test-all: $(VENV)/dev
	$(PYTEST)

# Kernels by plain njit, without the private parts of Numba: see docs/numba.md.
test-plain: $(VENV)/dev
	OCTAVO_PLAIN_NUMBA=1 $(PYTEST) -m "not slow" --cases=$(CASES) --case-seed=$(SEED) tests/cpu_kernels

# Tests that are short where AMX is emulated.
ON_TILES := tests/cpu_kernels/products/test_multiply.py tests/cpu_kernels/prefill/test_bf16_tiles.py tests/runtime/graph/test_product_nodes.py

test-cpus: $(VENV)/dev
	for cpu in baseline avx2 alderlake skylake icelake; do \
		OCTAVO_TEST_CPU=$$cpu $(PYTEST) -m "not slow" tests/cpu_kernels || exit 1; done
	OCTAVO_TEST_CPU=sapphirerapids $(PYTEST) -m "not slow" $(ON_TILES)

# Emulated, and as each of these CPUs: the oldest with NEON, one with products of bytes, and Apple's first.
ARM_CPUS := generic cortex-a76 apple-m1
ARM_TEST = PYTHONPATH=$(CURDIR)/$(VENV)/arm/site:$(CURDIR)/$(VENV)/src:$(CURDIR)/tests PYTHONDONTWRITEBYTECODE=1 \
	NUMBA_CPU_FEATURES= qemu-aarch64-static -L $(VENV)/arm/sysroot $(VENV)/arm/sysroot/usr/bin/python3 -m pytest -q -p arm.one_case \
	-p no:cacheprovider

test-arm: $(VENV)/dev
	tests/arm/setup.sh $(VENV)/arm $(BIN)/python llama.cpp
	for cpu in $(ARM_CPUS); do \
		NUMBA_CPU_NAME=$$cpu XDG_CACHE_HOME=$(VENV)/arm/cache-$$cpu $(ARM_TEST) tests/cpu_kernels tests/arm || exit 1; done

test-arm-short: $(VENV)/dev
	tests/arm/setup.sh $(VENV)/arm $(BIN)/python
	NUMBA_CPU_NAME=apple-m1 XDG_CACHE_HOME=$(VENV)/arm/cache-short $(ARM_TEST) \
		tests/cpu_kernels/numba_support/test_vector.py tests/cpu_kernels/rows/test_rows.py

test-drop-in: $(VENV)/upstream/ready
	cd $(VENV)/upstream && PYTHONPATH=$(CURDIR)/tests ../bin/python -m pytest -q -p helpers.drop_in_models tests

test-templates: $(VENV)/upstream/ready
	OCTAVO_TEST_TEMPLATES=$(CURDIR)/$(VENV)/upstream/vendor/llama.cpp/models/templates $(PYTEST) tests/templates

test-llama-server: $(VENV)/upstream/ready
	cd $(VENV)/upstream/vendor/llama.cpp/tools/server/tests && PYTHONPATH=$(CURDIR)/tests $(CURDIR)/$(BIN)/python \
		-m pytest -q -n $(PROCESSES) -p helpers.llama_server_tests -p no:cacheprovider -m "not slow" unit

$(VENV)/upstream/ready: $(VENV)/dev tests/helpers/upstream_tests.py
	$(BIN)/python tests/helpers/upstream_tests.py $(VENV)/upstream
	touch $@

test-lm-eval: $(VENV)/lm-eval/ready
	OCTAVO_TEST_LM_EVAL=$(CURDIR)/$(VENV)/lm-eval/bin/python $(BIN)/python -m pytest -s tests/serve/test_lm_eval.py

test-clients: $(VENV)/dev
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python tests/clients/run_clients.py $(VENV)/clients

$(VENV)/lm-eval/ready: $(VENV)/dev
	$(PYTHON) -m venv $(VENV)/lm-eval
	$(VENV)/lm-eval/bin/pip install --quiet "lm_eval[api]>=0.4.13,<0.5"
	touch $@

test-reliability: $(VENV)/dev
	OCTAVO_TEST_RELIABILITY=full $(BIN)/python -m pytest tests/reliability

try-readme:
	$(PYTHON) tests/readme/run_readme.py "$$(mktemp -d)/readme"

bench: $(VENV)/ready
	$(BIN)/octavo bench --depths 2048,8000

compile-times: $(VENV)/ready
	$(BIN)/python benchmarks/compile_times.py

man: $(VENV)/ready
	mkdir -p $(VENV)/share/man/man1
	$(BIN)/python -m octavo.cli.man > $(VENV)/share/man/man1/octavo.1

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# GCC loses stores that set up AMX's tiles: its _tile_loadconfig says that it reads 8 bytes of the 64. llama.cpp then
# crashes on CPUs with AMX. Without dead-store elimination GCC keeps these stores. Clang has no such bug.
KEEP_STORES := $$($${CXX:-c++} --version | grep -q 'Free Software Foundation' && echo -fno-dse -fno-tree-dse)
# Setuptools warns of each editable installation that folders of its name may hide it: none has.
INSTALL := PYTHONWARNINGS="ignore:Editable installation" CXXFLAGS="$$CXXFLAGS $(KEEP_STORES)" \
	$(PYTHON) tools/show_progress.py $(VENV)/install.log
PIP_INSTALL := $(BIN)/pip install --verbose

# llama.cpp is built for this CPU, which takes minutes. A wheel that pip kept may come from another CPU, or lack the
# flags above: if it crashes, llama.cpp is built again, and if that crashes too, for any CPU (on x86-64: AVX2, no AMX).
$(VENV)/ready: pyproject.toml setup.py Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "octavo needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip
	@echo "Installing octavo in $(VENV). llama.cpp is built for this CPU, the first time: about 7 minutes on 2 cores."
	@$(INSTALL) "Installing octavo" $(PIP_INSTALL) --editable ".[demo]"
	@$(BIN)/python -m octavo.runtime.selftest || $(MAKE) rebuild-llama.cpp || \
		$(MAKE) rebuild-llama.cpp CMAKE_ARGS="$$CMAKE_ARGS -DGGML_NATIVE=OFF"
	@echo "Compiling kernels for this CPU, once: about half a minute on 2 cores."
	@$(PYTHON) tools/show_progress.py $(VENV)/kernels.log "Compiling kernels" \
		$(BIN)/python -m octavo.runtime.compile_kernels
	@touch $@

# What tests and linters need besides: a third of a GB, and a path to octavo that has its name, for mypy and emulated CPUs.
$(VENV)/dev: $(VENV)/ready
	@$(INSTALL) "Installing the tools of tests" $(PIP_INSTALL) --editable ".[demo,dev]"
	@mkdir -p $(VENV)/src
	@ln -sfn ../.. $(VENV)/src/octavo
	@touch $@

rebuild-llama.cpp:
	@echo "llama.cpp, as it was built, does not run on this CPU: building it again."
	-$(BIN)/pip cache remove --quiet llama_cpp_python
	@$(INSTALL) "Building llama.cpp" $(PIP_INSTALL) --force-reinstall --no-deps --no-binary llama-cpp-python \
		"$$($(BIN)/pip freeze | grep -i '^llama.cpp.python==')"
	$(BIN)/python -m octavo.runtime.selftest

clean:
	rm -rf $(VENV) build dist *.egg-info
