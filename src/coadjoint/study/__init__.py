"""Convergence studies."""
