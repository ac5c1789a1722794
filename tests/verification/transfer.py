"""What a step on so(3) makes of means, exactly: its law on the sphere by quadrature, with nothing drawn at random.

A step takes a function f on the unit sphere to P f(x) = E f(step(x)). In spherical harmonics P is a matrix: the mean
over increments and Rademacher variables is a quadrature (Gauss–Hermite, all signs), its coefficients another one
(Gauss–Legendre).
Then means after n steps are powers of it, the invariant measure is its left eigenvector, and the equation's own means
are those of its generator.
"""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm

from coadjoint.drivers import Increment, mean_third


def harmonics(x, degree):
    """Real spherical harmonics up to a degree, orthonormal on the unit sphere, as polynomials in x = (x₁, x₂, x₃)."""
    c, s = [1.0 + 0.0 * x[2]], [0.0 * x[2]]
    for m in range(degree):
        c.append(x[0] * c[m] - x[1] * s[m])
        s.append(x[0] * s[m] + x[1] * c[m])
    first = np.sqrt(0.25 / np.pi)
    for m in range(degree + 1):
        first = first * np.sqrt((2 * m + 1) / (2 * m)) if m else first
        before, q = 0.0 * x[2], first + 0.0 * x[2]
        for k in range(m, degree + 1):
            if k > m:
                a = np.sqrt((4 * k * k - 1) / (k * k - m * m))
                b = np.sqrt(((k - 1) ** 2 - m * m) / (4 * (k - 1) ** 2 - 1))
                before, q = q, a * (x[2] * q - b * before)
            yield from [np.sqrt(2.0) * q * c[m], np.sqrt(2.0) * q * s[m]] if m else [q]


class Sphere:
    """Functions on the unit sphere as coefficients of harmonics up to a degree."""

    def __init__(self, degree):
        z, w = np.polynomial.legendre.leggauss(degree + 1)
        phi = 2 * np.pi * np.arange(2 * degree + 2) / (2 * degree + 2)
        rho = np.sqrt(1 - z**2)[:, None]
        points = np.broadcast_arrays(rho * np.cos(phi), rho * np.sin(phi), z[:, None])
        self.nodes = np.stack(points, -1).reshape(-1, 3)
        self.weights = np.repeat(w, len(phi)) * 2 * np.pi / len(phi)
        self.degree = degree
        self.values = np.stack(list(harmonics(self.nodes.T, degree)), -1)

    def coefficients(self, values):
        """Of functions, given at the nodes."""
        return self.values.T @ (self.weights[:, None] * np.asarray(values).reshape(len(self.nodes), -1))

    def of(self, f):
        """The coefficients of a function of x."""
        return self.coefficients(jax.vmap(f)(self.nodes))[:, 0]

    def at(self, x):
        """The functional f ↦ f(x)."""
        return np.array(list(harmonics(np.asarray(x), self.degree)))

    def generator(self, system):
        """V·∇f + ½ Σ X_i(X_i f) of all harmonics, with V = s ad*_{∂h + g} μ and X_i = s ad*_{∂h_i} μ."""
        ad_star, s = system.algebra.ad_star, system.sign
        basis = lambda x: jnp.stack(list(harmonics(x, self.degree)))

        def along(field, f):
            return lambda x: jax.jvp(f, (x,), (field(x),))[1]

        def applied(x):
            drift = along(lambda y: s * ad_star(system.drift(y), y), basis)(x)
            fields = [lambda y, e=e: s * ad_star(system.noise(y, e), y) for e in jnp.eye(system.n_noise)]
            return drift + 0.5 * sum(along(field, along(field, basis))(x) for field in fields)

        return self.coefficients(jax.vmap(applied)(jnp.asarray(self.nodes)))

    def step(self, system, integrator):
        """dt ↦ the matrix of P. With areas ± dt/2 and level 3 in the mean, moments to degree 5 are the path's."""
        needs, M = integrator.needs(system), system.n_noise
        levy = needs.areas or needs.third
        points, weights = gauss_hermite(4, 2 * M) if needs.Z else gauss_hermite(6, M)
        if levy:  # two points for what ΔZ has of its own: it counts but linearly
            points, weights = crossed(gauss_hermite(4, M), gauss_hermite(2, M))
        signs = np.array(list(product((1.0, -1.0), repeat=M * (M - 1) // 2 if levy else needs.signs)))
        coins = np.tile(signs, (len(points), 1))
        points, weights = np.repeat(points, len(signs), axis=0), np.repeat(weights, len(signs)) / len(signs)

        def end(method, x, dt, normal, sign):
            if levy:
                S, Z = jnp.sqrt(dt) * normal[:M], 0.5 * dt * jnp.sqrt(dt) * (normal[:M] + normal[M:] / 3.0**0.5)
                A = jnp.zeros((M, M)).at[np.triu_indices(M, 1)].set(0.5 * dt * sign)
                dS = Increment(S, jnp.full((), jnp.inf), Z, A - A.T, mean_third(S, dt) if needs.third else None)
                return after(method, x, dt, dS)
            if needs.Z:  # of two independent halves U, V of the increment
                U, V = jnp.sqrt(0.5 * dt) * normal[:M], jnp.sqrt(0.5 * dt) * normal[M:]
                S, Z = U + V, 0.5 * dt * (U + V + (U - V) / 3.0**0.5)
            else:
                S, Z = jnp.sqrt(dt) * normal, None
            dS = Increment(S, jnp.full((), jnp.inf), Z=Z, signs=sign if needs.signs else None)
            return after(method, x, dt, dS)

        def after(method, x, dt, dS):
            new, _, info = method.step(system, x, 0.0, dt, dS, integrator.init(system, x))
            return new, info.converged

        def ends(method):
            each = jax.vmap(jax.vmap(partial(end, method), (None, None, 0, 0)), (0, None, None, None))
            return jax.jit(each)

        fast, careful = ends(integrator.fast()), ends(integrator)

        def taken(*args):
            """As in a run: steps that the method cannot solve without its fallbacks are not taken by it."""
            new, solved = fast(*args)
            if not jnp.all(solved):
                new, solved = careful(*args)
            assert jnp.all(solved)
            return np.moveaxis(np.asarray(new), -1, 0)

        def matrix(dt):
            out = []
            for some in np.array_split(self.nodes, max(1, len(self.nodes) * len(points) // 2**18)):
                x = taken(some, dt, points, coins)
                out.append(np.stack([values @ weights for values in harmonics(x, self.degree)], -1))
            return self.coefficients(np.concatenate(out))

        return matrix


def gauss_hermite(order, dimension):
    """Points and weights for normal numbers."""
    x, w = np.polynomial.hermite_e.hermegauss(order)
    points = np.stack(np.meshgrid(*[x] * dimension, indexing="ij"), -1).reshape(-1, dimension)
    weights = np.prod(np.stack(np.meshgrid(*[w / w.sum()] * dimension, indexing="ij"), -1), -1).reshape(-1)
    return points, weights


def crossed(a, b):
    """Points and weights of the product of two quadratures."""
    (x, w), (y, v) = a, b
    return np.hstack([np.repeat(x, len(y), axis=0), np.tile(y, (len(x), 1))]), np.repeat(w, len(v)) * np.tile(v, len(w))


def exact_mean(generator, t, x, f):
    """E f(X_t) from x."""
    return x @ expm(t * generator) @ f


def invariant(P, f, one, at=1.0):
    """The mean of f in the law that P leaves as it is (a generator takes it to 0); `one` stands for the function 1."""
    values, left = np.linalg.eig(P.T)
    law = np.real(left[:, np.argmin(np.abs(values - at))])
    return law @ f / (law @ one)
