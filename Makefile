# Every target sets up what it needs on a Debian machine with Python 3.11 or newer.
# `make demo` and `make test` are the two to know.
PYTHON ?= python3
# Python would else compile every module again at each start, which is more than half of a broker's.
unexport PYTHONDONTWRITEBYTECODE
UV := $(shell command -v uv 2>/dev/null || echo .venv-uv/bin/uv)
RUN := $(UV) run --frozen --quiet
# What the product itself needs, without Spark and development tools.
RUN_PRODUCT := $(RUN) --no-dev --extra demo
SYNC = $(UV) sync --frozen --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"

.PHONY: setup up demo audit audit-proof audit-damages test test-thorough test-failed-alone test-fast check docs vulnerabilities fmt protos bench bench-v2 proof search long mutants torture power-cuts simulation timer-simulation send-back-simulation pop-simulation failover fuzz fuzz-ports filter-judge soak clients-test apache-test image image-audit k8s-test k8s-test-if-built procedures upgrade-test pythons compiled pure compiled-test clean

setup: .venv/.ready

# uv comes from pip, by its hash, when the machine has none; it then installs exactly what uv.lock says.
.venv/.ready: pyproject.toml uv.lock
	@command -v uv >/dev/null 2>&1 || test -x .venv-uv/bin/uv || $(MAKE) --no-print-directory .venv-uv
	@$(SYNC)
	@touch $@ .venv/.product

.venv/.product: pyproject.toml uv.lock
	@command -v uv >/dev/null 2>&1 || test -x .venv-uv/bin/uv || $(MAKE) --no-print-directory .venv-uv
	@$(SYNC) --inexact --no-dev --extra demo
	@touch $@

# On Debian, venv is a separate package.
.venv-uv:
	@$(PYTHON) -m venv $@ >/dev/null 2>&1 || { \
	  rm -rf $@; apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null && \
	  $(PYTHON) -m venv $@; } || { rm -rf $@; \
	  echo "cannot make a virtual environment: install python3-venv (Debian) or uv" >&2; exit 1; }
	@$@/bin/pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
	  -r deploy/image/build-requirements.txt

# A cluster on this machine, until Ctrl-C stops it.
up: .venv/.product
	$(RUN_PRODUCT) aerobee up

# Real flights through a real cluster; a consumer is killed on the way.
demo: .venv/.product
	$(RUN_PRODUCT) aerobee demo

# Spark, on which the offset audit runs, needs Java; nothing else does.
.venv/.java: deploy/setup/java.sh | setup
	@deploy/setup/java.sh
	@touch $@

# Six forks on two cores, because most tests wait for something. Each takes whole files, one of them the audit.
# Tests of several minutes are in `make proof`.
SUITE = $(RUN) pytest --forks 6 --durations 20
EVERYWHERE = not long and not kubernetes and not procedures and not apache and not pythons
test: setup .venv/.java
	$(SUITE) -m "not thorough and $(EVERYWHERE)"

# The same promises at length: more faults, more ways to die, whole audits. CI runs it after `test`;
# `make search` gives property tests more examples.
test-thorough: setup .venv/.java
	$(SUITE) -m "thorough and $(EVERYWHERE)" --hypothesis-profile whole

# Runs what failed in `make test` again, one at a time. A test that only timed out on a busy machine
# passes here; one that fails here has a cause.
test-failed-alone: setup
	$(RUN) pytest --last-failed --last-failed-no-failures none

# Tests marked `long`, except whole audits.
long: setup .venv/.java
	$(RUN) pytest -m "long and not kubernetes" --ignore tests/offset_audit/damages --timeout 0

# Audits the cluster that `make up` runs, on Spark: offsets, stores and replicas.
audit: setup .venv/.java
	$(RUN) aerobee audit

# Only whole audits: damaged stores and clusters, a busy healthy one; once on both engines.
audit-proof: setup .venv/.java
	$(RUN) pytest tests/offset_audit/damages --forks 2

# 1,000 random damages of stores: each found by the audit, or harmless to what a broker serves.
audit-damages: setup
	$(RUN) python -m tests.offset_audit.damages.campaign --damages 1000

# 100 audits of a healthy cluster that is never at rest: none may find what is not true.
audit-motion: setup
	$(RUN) python -m tests.offset_audit.damages.motion --audits 100

# For every edit: tests without real processes.
test-fast: setup
	$(RUN) pytest -m "not slow" --forks 2

check: setup docs
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) python tests/check_stubs.py
	$(RUN) python tests/check_types.py

# Builds the documentation site in dist/site, in an environment of its own; a dead link is an error.
# Not --quiet: MkDocs would then not count warnings, and pass.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(RUN) --isolated --only-group docs mkdocs build

# Checks the versions in uv.lock for known vulnerabilities at osv.dev; needs the network.
vulnerabilities: setup
	deploy/setup/vulnerabilities.sh $(UV)

fmt: setup
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

protos: setup
	$(RUN) python -m grpc_tools.protoc -I protos --python_out=protos --pyi_out=protos \
	  --grpc_python_out=protos protos/aerobee/v1/*.proto protos/apache/rocketmq/v2/*.proto

bench: setup
	$(RUN) aerobee bench all

# Compares Apache RocketMQ 5's gRPC API here and in Apache's proxy, whose jars come from Maven Central.
bench-v2: setup
	$(RUN) aerobee bench v2 --fetch

# All long targets below, and audit-proof: more than four hours. First prints how long each takes.
proof: setup
	$(RUN) python -m tests.proof

# Property tests with new examples each time, twenty times as many; `make test` uses fixed ones.
search: setup
	$(RUN) pytest -m hypothesis --hypothesis-profile search --timeout 0 --forks 2

# Puts known errors into a copy of the product, one at a time: the tests must catch each.
mutants: setup
	$(RUN) python -m tests.mutants --jobs 2

# 200 rounds of kill -9 under load with synchronous flush; some messages are delayed.
torture: setup
	$(RUN) python -m tests.torture.kill_broker --rounds 200

# 100,000 lives of a store, each ended by a power failure.
power-cuts: setup
	$(RUN) python -m tests.simulation power_cuts --seeds 100000 --jobs 2

# 200,000 lives of a replicated cluster in virtual time, with every fault of docs/internals/simulation.md.
simulation: setup
	$(RUN) python -m tests.simulation cluster --seeds 200000 --jobs 2

# 100,000 lives of a broker's timers, with crashes, fail-overs, full disks and clock changes.
timer-simulation: setup
	$(RUN) python -m tests.simulation timers --seeds 100000 --jobs 2

# 100,000 lives of a broker's failed messages, with crashes, fail-overs and power cuts.
send-back-simulation: setup
	$(RUN) python -m tests.simulation send_backs --seeds 100000 --jobs 2

# 100,000 lives of messages that are received by POP, with crashes, fail-overs and full disks.
pop-simulation: setup
	$(RUN) python -m tests.simulation pops --seeds 100000 --jobs 2

# 100 fail-overs of real processes under load, and every other scenario.
failover: setup
	$(RUN) python -m tests.failover --rounds 100

# Builds deploy/Dockerfile, even without an image registry: see deploy/image/.
image:
	deploy/image/build.sh

# The same with Java and Spark.
image-audit:
	deploy/image/build.sh audit

# The manifests on a real API server, and the pods in containers of the image, which is built first.
# Without a builder, the tests of containers are skipped.
k8s-test: setup
	-deploy/image/build.sh
	$(RUN) python -m tests.kubernetes

# Saves minutes: no containers, and the API server only if `make k8s-test` has built it before.
k8s-test-if-built: setup
	$(RUN) python -m tests.kubernetes --api-server-if-built

# 1,000,000 mutated byte streams against the gRPC server and as many of remoting frames, 100,000 odd
# requests to Apache's API, and 500,000 texts that are, or nearly are, SQL filters.
fuzz: setup
	$(RUN) python -m tests.rpc.core.fuzz --streams 1000000
	$(RUN) python -m tests.remoting_core.fuzz --frames 1000000 --headers 200000
	$(RUN) python -m tests.rocketmq_api.fuzz --requests 100000
	$(RUN) python -m tests.domain.sql_filter.fuzz --texts 500000

# 2,000,000 fuzzed requests and attacks on HTTP/2 and TLS, against all ports of five clusters.
fuzz-ports: setup
	$(RUN) python -m tests.port_fuzz --requests 2000000

# Apache's own filter classes and ours on 10,000 expressions and messages; needs Java and Maven.
filter-judge: setup
	$(RUN) python -m tests.domain.sql_filter.apache.judge --cases 10000

# The gRPC core at half load for 30 minutes, among clients that cancel, hang and are killed.
soak: setup
	$(RUN) python -m tests.rpc.core.soak --minutes 30

# grpc-go, grpc-java, grpc-js and tonic against the gRPC core, and Apache's clients for five languages
# and of remoting against a cluster, as far as the languages are installed. The programs are built once, in the cache
# folder, which takes some minutes.
clients-test: setup
	$(RUN) python -m tests.rpc.core.interop.programs
	$(RUN) python -m tests.rocketmq_api.official.programs
	$(RUN) python -m tests.rocketmq_remoting.official.programs
	$(RUN) python -m tests.rocketmq_remoting.suite.programs
	$(RUN) pytest tests/rpc/core/interop tests/rpc/core/test_client_shapes.py tests/rocketmq_api/official tests/rocketmq_remoting/official \
	  tests/rocketmq_remoting/suite

# Hands a store folder over between Apache's broker and ours, both ways, after stops and after kill -9.
# Fetches Apache RocketMQ 5.3.3 from Maven Central once (91 MB); needs Java and Maven.
apache-test: setup
	$(RUN) python -m tests.apache_broker.programs
	$(RUN) pytest -m apache tests/apache_broker

# Carries out every page of docs/operations word for word.
procedures: setup
	$(RUN) pytest -m procedures tests/docs

# Upgrades a cluster of the newest release (deploy/released.toml) to this tree under load, with one step back.
upgrade-test: setup
	$(RUN) pytest tests/upgrade

# The package as strangers get it: its sdist, its wheel, and that one installed and used by each
# supported Python of this machine. Those that it lacks are skipped, by name.
pythons: setup
	$(RUN) pytest -m pythons -rs -n 2 --dist worksteal tests/package

# The hot modules as machine code beside their sources, until one of these changes: an import then fails
# and says so. `make pure` removes them. Needs a C compiler, and a minute or two.
COMPILE = $(RUN) python deploy/compiled/build.py
compiled: setup
	$(COMPILE)

pure: setup
	$(COMPILE) --remove

# Do they still compile, and behave as Python? Their tests on what was compiled, and the checkout is pure again.
compiled-test: setup
	$(COMPILE) --quick
	$(RUN) python -m tests.compiled; result=$$?; $(COMPILE) --remove; exit $$result

clean:
	find . -path ./.venv -prune -o -name '*.so' -path '*/aerobee/*' -delete
	rm -f runtime/aerobee__mypyc.py
	rm -rf .venv .venv-uv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
