"""Runs: plan, backend, loop, sink, result (docs/development/architecture.md)."""
