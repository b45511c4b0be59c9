# `make why` explains a transfer, `make test` checks the project; both first install what they need.
# `make install` installs the command and the Python package into a virtual environment.
# `make devices` builds what runs on devices (plugins) and the tools to write it.
# `make guest` fetches what Linux guests need (QEMU, Debian's kernel; docs/guests.md).
# `make wheel`, `make static` and `make deb` build what is given to others; `make release` all of it from a clean clone.
# `make check` checks a change quickly, `make test-long` runs tests that take hours.

CARGO ?= cargo

.PHONY: why install devices guest test check test-long setup setup-devices setup-guest setup-test build bench wheel static deb release fmt clean

why: setup
	$(CARGO) build --profile quick --locked --package lastmeter
	target/quick/lastmeter why --out out/why

# Into a virtual environment; quick to build, as `make why` is.
install: setup-install
	python3 -m venv target/env
	target/env/bin/pip install --quiet --disable-pip-version-check maturin==1.16.0
	rm -rf target/env/wheels
	target/env/bin/maturin build --quiet --locked --profile quick --manifest-path python/Cargo.toml --out target/env/wheels
	target/env/bin/pip install --quiet --disable-pip-version-check --force-reinstall target/env/wheels/lastmeter-*.whl

devices: setup-devices
	$(CARGO) build --release --locked --package lastmeter --package lastmeter-daemon

guest: setup-guest

# What tests need besides is installed by the script, beside the build; the script itself needs Python.
test: setup-install
	./scripts/test

check: setup
	./scripts/check

test-long: setup-test
	./scripts/test-long

setup:
	./scripts/setup build

setup-install:
	./scripts/setup install

setup-devices:
	./scripts/setup devices

setup-guest:
	./scripts/setup guest

setup-test:
	./scripts/setup test

build: setup
	$(CARGO) build --release --locked --package lastmeter

bench: build
	target/release/lastmeter bench

wheel static deb: setup-install
	./scripts/release $@

release: setup-install
	./scripts/release

fmt:
	$(CARGO) fmt --all

clean:
	$(CARGO) clean
	rm -rf out
