"""Numerics that knows JAX alone: series, root finding, random numbers, traced functions, checks of arguments."""
