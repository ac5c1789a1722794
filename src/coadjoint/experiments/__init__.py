"""Experiments: runs described by files."""
