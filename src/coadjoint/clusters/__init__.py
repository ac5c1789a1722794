"""Clusters: batches as tasks of Dask (docs/guides/dask.md)."""
