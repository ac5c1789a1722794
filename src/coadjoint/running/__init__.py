"""Runs: plan, backend, loop, sink, result (docs/architecture.md)."""
