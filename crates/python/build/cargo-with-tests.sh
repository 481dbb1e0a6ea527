#!/bin/sh
# In place of maturin's `cargo rustc`, when the tests' products are there. Cargo chooses features for what it
# builds together, so the package alone would build most of its dependencies again, with fewer features. What
# maturin says of Python is left out, as the tests' build knew nothing of it.
unset CARGO PYO3_BUILD_EXTENSION_MODULE PYO3_CONFIG_FILE PYO3_ENVIRONMENT_SIGNATURE PYO3_PYTHON
exec cargo build --locked --workspace --lib --test e2e --message-format json-render-diagnostics
