# Two commands do everything: `make why` explains a transfer, `make test` checks the project.
# Both set up what they need first.

CARGO ?= cargo

.PHONY: why test setup setup-test build bench fmt clean

why: setup
	$(CARGO) build --release --locked --package lastmeter
	target/release/lastmeter why --out out/why

test: setup-test
	./scripts/test

setup:
	./scripts/setup build

setup-test:
	./scripts/setup test

build: setup
	$(CARGO) build --release --locked --workspace

bench: build
	target/release/lastmeter bench

fmt:
	$(CARGO) fmt --all

clean:
	$(CARGO) clean
	rm -rf out
