"""Numerics that depends only on JAX: series, root finding, random numbers, traced functions, checks of arguments."""
