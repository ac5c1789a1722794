"""Compiles steps of large arrays as loops over the elements of the arrays."""
