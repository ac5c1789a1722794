"""Casimir preserving stochastic Lie–Poisson integrators, reproduced: an experiment is NAME.toml and NAME.py."""
