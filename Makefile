# Two commands for people, each of which does all its own set-up. What developers run besides is in CONTRIBUTING.md.

# A fresh machine gets its Rust from scripts/setup.sh, which the calling shell does not know yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: demo test

# Tenants on a real kernel: under the kernel's own scheduler, under its quota, and under Rota. Ends with the table.
demo:
	scripts/setup.sh
	cargo build --release --locked --package rota --package rota-lab
	target/release/rota demo

# Every check and every test. Ends with how many passed, failed and were skipped.
test:
	scripts/setup.sh
	cargo xtask test
