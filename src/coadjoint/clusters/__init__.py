"""Clusters: tiles as tasks of Dask (docs/clusters.md)."""
