# Every rule is a line of real work on `aipc` or a tool. They run in .venv, which they make out of the locks when it is missing or old.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help deploy matrix test check bench lock images
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# The stamps carry the checkout's place: a .venv that was copied or moved with it still points at the old one.
PLACE := $(shell pwd | cksum | cut -d ' ' -f 1)
HOST := .venv/host-$(PLACE)
DEV := .venv/dev-$(PLACE)
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	$(if $(UPGRADE),--upgrade) -c images/reference/requirements.lock pyproject.toml

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

deploy: $(HOST) ## deploy a model: MODEL=esrgan RUNTIME=openvino [PRECISION= TARGET= SHAPE= ENGINE=]
	@test -n "$(MODEL)" -a -n "$(RUNTIME)" || { echo "make deploy: MODEL or RUNTIME is missing; for instance make deploy MODEL=esrgan RUNTIME=openvino" >&2; exit 2; }
	@$(BIN)/aipc deploy "$(MODEL)" --runtime "$(RUNTIME)" $(if $(PRECISION),--precision "$(PRECISION)") $(if $(TARGET),--target "$(TARGET)") $(if $(SHAPE),--shape "$(SHAPE)") $(if $(ENGINE),--engine "$(ENGINE)")

matrix: $(HOST) ## deploy all cells of matrix.toml: [SELECT="esrgan*/openvino/*" ENGINE= MARKDOWN=docs/results.md]
	@$(BIN)/aipc matrix $(foreach pattern,$(SELECT),'$(pattern)') $(if $(MARKDOWN),--markdown "$(MARKDOWN)") $(if $(ENGINE),--engine "$(ENGINE)")

test: $(DEV) ## run the tests: [ARGS="-k name"]
	@$(BIN)/python -m pytest $(ARGS)

check: $(DEV) ## lint, formatting, types and skills
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@for skill in skills/*; do $(BIN)/agentskills validate "$$skill" >/dev/null || exit 1; done

bench: $(DEV) ## measure what a deploy costs beside doing it by hand: [ARGS="--rounds 1"]
	@$(BIN)/python tests/bench/bench.py $(ARGS)
	@$(BIN)/python tests/bench/beside.py $(ARGS)
	@$(BIN)/python tests/bench/bisection.py

lock: $(HOST) ## remake the locks: [UPGRADE=1]
	@$(BIN)/aipc lock
	@$(COMPILE) --group pyproject.toml:build -o orchestrator/requirements.lock
	@$(COMPILE) --extra dev -c orchestrator/requirements.lock -o tests/requirements.lock

images: $(HOST) ## build the container images
	@$(BIN)/aipc images build

$(HOST): orchestrator/requirements.lock orchestrator/setup.sh pyproject.toml
	@orchestrator/setup.sh host
	@touch $@

$(DEV): $(HOST) tests/requirements.lock
	@orchestrator/setup.sh dev
	@touch $@
