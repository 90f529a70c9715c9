# The doors of a checkout. Each target sets up what it needs: `.venv` by constraints.txt, Java, Maven, Go and Node.js by .ci/tools.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYRIGHT := $(VENV)/.pyright-ready
PARTS := broker cli client common console export metrics namesrv proxy remoting spark store testing
PUBLIC := client common spark testing

# Tests are compiled anew in each of many processes where nothing may be kept.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-ci test-random test-long check fix bench bench-java bench-long compatibility mqadmin control-port durability chaos docs mutants

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

demo: $(READY) ## send, consume and export 100,000 messages, with proof, in under a minute
	@.ci/tools java
	@$(BIN)/python examples/demo.py

test: check ## run all checks, and the tests: each feature is shown by at least one
	@.ci/tools --try jdk maven go node chromium
	@$(BIN)/python tests/interop/build.py --without-long
	@$(BIN)/pytest --numprocesses=3 --dist=loadscope -m 'not ci' --ignore=tests/test_layers.py # which make check has run

test-ci: $(READY) ## run the other tests: long forms, second legs, the Java client 4.9.8
	@.ci/tools --try jdk maven go node rust systemd
	@$(BIN)/python tests/interop/build.py
	@$(BIN)/pytest --numprocesses=3 --dist=worksteal -m ci

test-random: $(READY) ## run the tests of make test in random order, twenty at a time
	@.ci/tools --try jdk maven go node chromium
	@$(BIN)/python tests/interop/build.py --without-long
	@$(BIN)/pytest -p randomly --numprocesses=20 --dist=loadscope -m 'not ci' --timeout=600

test-long: $(READY) ## run the tests whose cases are drawn by chance with thirty times as many
	@.ci/tools --try jdk maven go node
	@$(BIN)/python tests/interop/build.py --without-long
	@$(BIN)/pytest --numprocesses=2 --dist=worksteal -m hypothesis --hypothesis-profile=long --timeout=1200
	@ROCKETLET_JOIN_ROUNDS=100 $(BIN)/pytest tests/interop/test_joins.py

check: $(READY) $(PYRIGHT) ## check format, lint, types and layers
	@$(BIN)/ruff format --check --quiet || { echo 'run "make fix" to format these files'; exit 1; }
	@$(BIN)/ruff check --quiet
	@$(BIN)/pyright
	@$(BIN)/pytest -q tests/test_layers.py

fix: $(READY) ## repair what can be repaired: format and lint
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(READY) ## measure sends and consumption beside a bare echo
	@.ci/tools --try jdk maven
	@$(BIN)/python bench/run.py

bench-java: $(READY) ## measure the broker beside the Java broker, in 20 minutes at most
	@.ci/tools --try jdk maven
	@$(BIN)/python bench/java.py

bench-long: $(READY) ## the same in all rows, the client, Spark, and what stays flat; write docs/reference/performance.md
	@.ci/tools --try jdk maven
	@$(BIN)/python bench/java.py --long --page docs/reference/performance.md --chart docs/images/performance.png

compatibility: $(READY) ## run all tests and write docs/reference/compatibility.md
	@.ci/tools --try jdk maven go node rust chromium systemd
	@$(BIN)/python tests/interop/build.py
	@$(BIN)/pytest tests --ignore=tests/house/test_features.py --compatibility-page=docs/reference/compatibility.md

mqadmin: $(READY) ## run every command of mqadmin and write docs/reference/mqadmin.md
	@.ci/tools --try jdk maven
	@$(BIN)/python tests/interop/build.py --without-long
	@$(BIN)/pytest tests/interop/test_mqadmin.py -k page_says --mqadmin-page=docs/reference/mqadmin.md

control-port: $(READY) ## write docs/reference/control-port.md from the table of its routes
	@$(BIN)/python tests/support/control_page.py docs/reference/control-port.md

durability: $(READY) ## try to lose messages: crashes, kills, lost machines, rot, other brokers; write docs/reference/durability.md
	@.ci/tools --try jdk maven go node rust
	@$(BIN)/python tests/interop/build.py
	@$(BIN)/pytest tests -m durability --durability-page=docs/reference/durability.md

chaos: $(READY) ## break servers and network under our client, in a hundred rounds
	@ROCKETLET_CHAOS_ROUNDS=100 $(BIN)/pytest tests/chaos

docs: $(READY) ## build the documentation site in build/site
	@mkdir -p $(VENV)/docs/rocketlet && cd $(VENV)/docs/rocketlet && ln -sfn $(foreach each,__init__.py $(PUBLIC),../../../$(each)) .
	@$(BIN)/zensical build --clean --strict

mutants: $(READY) ## put faults into each part and count those that its tests see; write docs/reference/testing.md
	@.ci/tools --try java
	@PYTHONPATH=tests/support $(BIN)/python -m mutants.run --page docs/reference/testing.md

$(READY): constraints.txt pyproject.toml $(wildcard common/_*.pyx)
	@.ci/tools venv
	@.ci/tools --try compiler
	@echo 'setting up $(VENV) (once; later runs find it ready)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -m compileall -q __init__.py __main__.py $(PARTS) # else every start compiles where PYTHONDONTWRITEBYTECODE is set
	@[ "$(notdir $(CURDIR))" = rocketlet ] || { mkdir -p $(VENV)/checkout && ln -sfn ../.. $(VENV)/checkout/rocketlet; } # for pyright
	@touch $@

# The pyright of the Python registry is a shell around a JavaScript program that npm brings on first use.
$(PYRIGHT): $(READY)
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --version >$@.log 2>&1 || { \
		cat $@.log; \
		echo 'pyright could not fetch its JavaScript part: make check needs the network (npm) once'; exit 1; }
	@rm $@.log && touch $@
