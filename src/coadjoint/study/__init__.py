"""Studies of methods on systems."""
