# `make why` explains a transfer, `make test` checks the project; both first install what they need.
# `make devices` builds what runs on devices (plugins) and the tools to write it.
# `make check` checks a change quickly, `make test-long` runs tests that take hours.

CARGO ?= cargo

.PHONY: why devices test check test-long setup setup-devices setup-test build bench fmt clean

why: setup
	$(CARGO) build --profile quick --locked --package lastmeter
	target/quick/lastmeter why --out out/why

devices: setup-devices
	$(CARGO) build --release --locked --package lastmeter --package lastmeter-daemon

test: setup-test
	./scripts/test

check: setup
	./scripts/check

test-long: setup-test
	./scripts/test-long

setup:
	./scripts/setup build

setup-devices:
	./scripts/setup devices

setup-test:
	./scripts/setup test

build: setup
	$(CARGO) build --release --locked --package lastmeter

bench: build
	target/release/lastmeter bench

fmt:
	$(CARGO) fmt --all

clean:
	$(CARGO) clean
	rm -rf out
