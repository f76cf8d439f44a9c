# Everything runs in .venv, which is made on first use and again only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TYPES_INSTALLED := .venv/.types-installed
PEERS_INSTALLED := .venv/.peers-installed
TORCH := $(shell sed -n 's/^torch = \["\(.*\)"\]$$/\1/p' pyproject.toml)

.PHONY: demo test fuzz lint types bench gpu-check wheel clean

demo: $(INSTALLED)  ## show what the compiler does with one model
	$(BIN)/python examples/demo.py

test: $(INSTALLED)  ## run the test suite; ARGS="-k name" narrows it
	$(BIN)/pytest -n auto $(ARGS)

fuzz: $(INSTALLED)  ## try 3,000 random models, 200 networks, 750 programs; ARGS="--first-seed 100" tries others
	$(BIN)/pytest -n auto tests/test_random_models.py tests/test_random_networks.py --examples 3000 $(ARGS)

lint: $(INSTALLED)  ## check style and imports
	$(BIN)/ruff check .

types: $(TYPES_INSTALLED)  ## check types
	$(BIN)/pyright --pythonpath $(BIN)/python --project .ci/typing

bench: $(PEERS_INSTALLED)  ## measure against other compilers; ARGS="ResNet --turns 10" narrows it
	$(BIN)/python -m bench peers $(ARGS)

gpu-check: $(INSTALLED)  ## on a machine with a GPU: check and time the CUDA kernels
	$(BIN)/python -m bench.gpu_check $(ARGS)

wheel: $(INSTALLED)  ## build the wheel, install it away from the sources, and try it
	$(BIN)/python .ci/try_wheel.py

clean:  ## remove the environment and everything that was built
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first and alone, so that resolving the rest never looks at another build of it.
$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[torch,test]"
	touch $@

$(TYPES_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[types]"
	touch $@

$(PEERS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	touch $@
