# make demo   the main job, on a fresh machine
# make demo-agent   the lab's agent mends bugs under mini-swe-agent, and one patch of N is picked
# make test   every check and every test; .ci/run calls this
# make test-engines   real vLLM on CPU, in an environment of its own (3.5 GB); VLLM=0.32.0 for a version other than CI's
# make test-fast   every check, and the tests that are not marked slow
# make check  format, lint, types, import contracts
# make reproduce   the published tables, from the shipped rollouts; SCALE=small or full, SAMPLING=paper or hot, OUT=build/reproduce, DEVICE=cuda
# make bench  measure against named peers and rewrite docs/benchmarks.md

PYTHON ?= python3
VLLM ?= 0.30.0
ENGINES := .engines/$(if $(filter 0.30.0,$(VLLM)),venv,$(VLLM))
BIN := .venv/bin

.PHONY: demo demo-agent test test-fast test-engines check reproduce bench clean

demo: .venv/installed
	$(BIN)/radmoe demo

demo-agent: .venv/agent
	$(BIN)/radmoe agent demo

test: .venv/dev
	scripts/check --tests

test-fast: .venv/dev
	scripts/check --fast

test-engines:
	PYTHON=$(PYTHON) scripts/vllm-env $(VLLM)
	$(ENGINES)/bin/python -m pytest tests/engines/vllm -n 2 --dist loadfile --durations=10

check: .venv/dev
	scripts/check

reproduce: .venv/installed
	scripts/reproduce

bench: .venv/bench
	$(BIN)/python -m benchmarks

.venv/created:
	$(PYTHON) -m venv .venv
	touch $@

INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PACKAGES := --editable . --editable packages/radmoe-lab --editable packages/radmoe-studies  # radmoe itself too: pip finds it for them
AGENT := --editable packages/radmoe-agent  # apart: it brings mini-swe-agent, which the demo does without
ALL := $(PACKAGES) $(AGENT) --editable packages/radmoe-integrations --editable packages/radmoe-llamacpp

.venv/installed: .venv/created constraints.txt pyproject.toml packages/radmoe-lab/pyproject.toml packages/radmoe-studies/pyproject.toml
	$(INSTALL) $(PACKAGES) --editable '.[demo]'
	touch $@

.venv/agent: .venv/installed packages/radmoe-agent/pyproject.toml
	scripts/system-packages git
	$(INSTALL) $(PACKAGES) $(AGENT)
	touch $@

.venv/dev: .venv/installed packages/radmoe-agent/pyproject.toml packages/radmoe-integrations/pyproject.toml packages/radmoe-llamacpp/pyproject.toml
	scripts/system-packages
	$(INSTALL) $(ALL) --editable '.[dev]'
	touch $@

.venv/bench: .venv/installed
	$(INSTALL) $(ALL) --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv .engines build src/*.egg-info packages/*/build packages/*/src/*.egg-info
