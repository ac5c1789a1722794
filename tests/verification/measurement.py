"""What the verification tests share: the integrators, the paper's heavy top, fits."""

import jax.numpy as jnp
import numpy as np
from algebras import CUBIC, LAMBDA, matrix_constants

import coadjoint as cj

INERTIAS = [(4, 4, 1), (4, 2, 1)]  # the paper's

# Every integrator of the library, by name: a new one is verified without anyone having to add it here.
INTEGRATORS = cj.integrators.ALL


def quartic_body(side="left"):
    """A rigid body with a quartic energy, no noise, and a start."""
    inertia = jnp.array([1.0, 2.0, 3.0])
    system = cj.System(cj.SO3(), lambda pi: 0.5 * pi @ (pi / inertia) + 0.05 * (pi[0] ** 4 + pi[1] ** 4), side=side)
    return system, np.array([0.6, -0.7, 0.9])


def in_parts(system):
    """Sine-Euler with its energy as a sum over pairs of modes ±m, which commute: splittings take it like this."""
    n = system.algebra.n
    modes = [(a, b) for a in range(n // 2 + 1) for b in range(-(n // 2), n // 2 + 1) if (a, b) > (0, 0)]

    def part(a, b):
        return lambda W: n**3 / (16 * np.pi**2) * jnp.abs(cj.models.matrix_to_fourier(W)[a, b]) ** 2 / (a * a + b * b)

    return cj.System(system.algebra, [part(a, b) for a, b in modes], list(system.noises), side="right")


# su(3) with diag(1, 1, −2) = √3 λ₈ in place of λ₈: the structure constants are whole and half numbers, so that doubles
# hold su(3) itself and not something that breaks the Jacobi identity by round-off, and with it the cubic Casimir.
_SU3_SCALES = np.array([1.0] * 7 + [3.0**0.5])
_SU3_BASIS = LAMBDA.copy()
_SU3_BASIS[7] = np.diag([1, 1, -2])
SU3_EXACT = matrix_constants([-0.5j * m for m in _SU3_BASIS])
_SU3_CUBIC = np.round(18 * CUBIC / np.einsum("a,b,c->abc", _SU3_SCALES, _SU3_SCALES, _SU3_SCALES)).astype(np.longdouble)


def su3_casimirs(mu):
    """Both Casimirs of su(3) in the basis of SU3_EXACT, evaluated in extended precision where there is one."""
    mu = np.asarray(mu, dtype=np.longdouble)
    quadratic = np.sum(mu[..., :7] ** 2, axis=-1) + mu[..., 7] ** 2 / 3
    return np.stack([quadratic, np.einsum("abc,...a,...b,...c", _SU3_CUBIC, mu, mu, mu) / 18], axis=-1)


def casimir_errors(sol, casimirs=None):
    """C − C(0) at the saved times, (…, n_saved, k); `casimirs`: a function of states, in place of the known ones."""
    values = sol.casimirs() if casimirs is None else casimirs(sol.mu)
    return np.asarray(values - values[..., :1, :], dtype=np.float64)


def worst(errors):
    """Largest absolute entry."""
    return float(np.max(np.abs(errors)))


def growth(errors, windows=100):
    """How much a Casimir's error grows over a run: the larger of two fitted changes from first to last window.

    One line is fitted to the means of the windows (a bias), one to their rms (a random walk).
    """
    rows = errors[1:].reshape(windows, -1, errors.shape[-1])
    x = np.linspace(-0.5, 0.5, windows)
    changes = [x @ y / (x @ x) for y in (rows.mean(axis=1), np.sqrt((rows**2).mean(axis=1)))]
    return worst(changes)


def exp_action(a, v):
    """exp(a) v for stacks of small matrices and vectors: Taylor series in substeps, no BLAS and its threads."""
    substeps = int(np.ceil(2 * np.abs(a).sum(axis=-1).max())) or 1
    for _ in range(substeps):
        total = term = v
        for k in range(1, 16):
            term = np.einsum("...ij,...j->...i", a, term) / (k * substeps)
            total = total + term
        v = total
    return v


def slope(x, y):
    """Least-squares slope of y on x, along the last axis of y."""
    x = np.asarray(x) - np.mean(x)
    return y @ x / (x @ x)


def measured_order(dts, errors, typical=np.mean, resamples=400):
    """Order of the rms error, and its standard error by resampling paths; errors: (step sizes, paths).

    With typical=np.median, of the median error.
    """
    squares = np.asarray(errors) ** 2
    logs = np.log2(dts)
    pick = np.random.default_rng(0).integers(0, squares.shape[1], (resamples, squares.shape[1]))
    resampled = 0.5 * np.log2(typical(squares[:, pick], axis=2))
    return slope(logs, 0.5 * np.log2(typical(squares, axis=1))), slope(logs, resampled.T).std()


def fitted_order(dts, errors):
    """Order of a deterministic error, and the standard error of the fit."""
    (order, _), covariance = np.polyfit(np.log2(dts), np.log2(errors), 1, cov=True)
    return order, np.sqrt(covariance[0, 0])
