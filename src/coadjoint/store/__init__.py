"""Stores: runs on disk that survive any kill (docs/stores.md)."""
