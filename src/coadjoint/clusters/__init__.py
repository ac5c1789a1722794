"""Clusters: tiles as tasks of Dask (docs/guides/dask.md)."""
