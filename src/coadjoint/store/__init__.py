"""Stores: runs on disk that survive any kill (docs/guides/stores.md)."""
