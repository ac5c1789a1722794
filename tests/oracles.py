"""Oracles in exact arithmetic: integers in units of 2^-256, independent of the library's algorithms."""

import jax
import jax.numpy as jnp
import numpy as np

_BITS = 256
_ONE = 1 << _BITS


def _whole(x):
    """A double as a whole number of units, cut off towards 0."""
    numerator, denominator = abs(x).as_integer_ratio()
    units = numerator * _ONE // denominator
    return -units if x < 0 else units


def _fixed(x):
    """The doubles of an array as whole numbers of units."""
    x = np.asarray(x, float)
    return np.array([_whole(v) for v in x.ravel().tolist()], object).reshape(x.shape)


def _floats(x):
    return np.vectorize(lambda v: v / _ONE, otypes=[float])(x)


def structure_constants(algebra):
    """C from the bracket of the basis alone."""
    basis = jnp.eye(algebra.dim)
    column = jax.vmap(
        lambda a, b: algebra.coordinates(algebra.bracket(algebra.element(a), algebra.element(b))), (None, 0)
    )
    return np.asarray(jax.jit(jax.vmap(column, (0, None)))(basis, basis))


def _taylor(C, sigma, mu):
    """exp(ad*_σ) μ by its Taylor series; all in units."""
    a = np.tensordot(sigma, C, axes=1) >> _BITS  # ad*_ξ μ has the components Σ_ik ξ_i C[i, j, k] μ_k
    term, total, k = mu, mu, 0
    while np.any(abs(term) > 1):
        k += 1
        term = (a @ term >> _BITS) // k
        total = total + term
    return total


def flow(C, sigma, mu):
    """exp(ad*_σ) μ, rounded to doubles at the end."""
    return _floats(_taylor(_fixed(C), _fixed(sigma), _fixed(mu)))


def flow_residual(C, sigma, mu, hi, lo):
    """hi + lo − exp(ad*_σ) μ, for a result in double-double."""
    return _floats(_fixed(hi) + _fixed(lo) - _taylor(_fixed(C), _fixed(sigma), _fixed(mu)))


def chain_residual(C, sigmas, mu, end):
    """end − exp(ad*_σ) … μ, by each σ in turn."""
    C, state = _fixed(C), _fixed(mu)
    for sigma in sigmas:
        state = _taylor(C, _fixed(sigma), state)
    return _floats(_fixed(end) - state)


def dexp(ad):
    """Σ ad^k/(k + 1)!, the matrix of dexp, rounded to doubles at the end."""
    a = _fixed(ad)
    term = total = _fixed(np.eye(len(ad)))
    k = 1
    while np.any(abs(term) > 1):
        k += 1
        term = (a @ term >> _BITS) // k
        total = total + term
    return _floats(total)


def flow_jvp(C, sigma, mu, dsigma, dmu):
    """The derivative of the flow, by central differences of width 2^-80: right to 2^-150."""
    C, sigma, mu, dsigma, dmu = map(_fixed, (C, sigma, mu, dsigma, dmu))
    ahead, behind = (_taylor(C, sigma + s * (dsigma >> 80), mu + s * (dmu >> 80)) for s in (1, -1))
    return _floats((ahead - behind) << 79)
