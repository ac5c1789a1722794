"""Algebras that tests compose, and random arrays for them."""

import numpy as np

import coadjoint as cj

PAULI = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
METHODS = ("bracket", "ad_star", "flow", "dexp", "dexpinv")
QUICK = {"integrator": cj.TMK(fallbacks=False)}  # half as much to compile
PLANE = np.array([[[0.0, -1.0], [1.0, 0.0]]])  # so(2) turning the plane


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def se3(copies=1):
    return cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3, copies=copies)


def so2():
    return cj.StructureConstants(np.zeros((1, 1, 1)))
