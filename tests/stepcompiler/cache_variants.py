"""Runs that differ in one small thing: a bit of a constant, a type, a shape, a rule, a closure, an option.

`FAMILIES` maps a name to functions without arguments. Each makes its system anew and returns arrays. Whatever is
cached, a run must give the numbers that it gives in a process of its own. Tests call `digests`, here and in a process
that goes through the variants in reverse.
"""

import functools
import hashlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import coadjoint as cj

MU = np.array([0.6, -0.5, 0.8])
UP = lambda x: float(np.nextafter(x, 9.0))
SQUARES = lambda m, *_: 0.5 * jnp.sum(m**2 * jnp.array([1.0, 2.0, 3.0]))
SO3, EULER = cj.SO3(), cj.EulerMaruyamaMK()


def run(hamiltonian=SQUARES, noise=(), algebra=SO3, mu0=MU, params=None, side="left", backend="auto", **options):
    """A run of a new system: all that it returns."""
    made = {k: options.pop(k) for k in ("forcing", "gradient", "dissipation") if k in options}
    system = cj.System(algebra, hamiltonian, noise, params=params, side=side, **made)
    options = {"t1": 0.2, "dt": 0.1, "integrator": EULER, "key": 7 if system.n_noise else None} | options
    sol = (cj.ensemble if "members" in options else cj.solve)(system, mu0, backend=backend, **options)
    results = getattr(sol, "reduced", None) if "reduce" in options else sol.saved if "save" in options else sol.mu
    return [np.asarray(x) for x in jax.tree.leaves((results, sol.stats.unsolved))]


def force(fn, **options):
    """A run with a forcing, which explicit methods do not differentiate."""
    return lambda: run(forcing=fn, **options)


def captured(values, use=lambda m, a: a * m, **options):
    """A forcing that has captured an array."""
    return lambda: run(forcing=lambda m: use(m, jnp.asarray(values)), **options)


def mutated():
    """An array that changes after a system was made from it."""
    a = np.array([0.1, 0.2, 0.3])
    first = run(forcing=lambda m: m * jnp.asarray(a))
    a[1] = 0.9
    return first + run(forcing=lambda m: m * jnp.asarray(a))


def ruled(factor):
    """A Hamiltonian with a derivative of its own."""

    @jax.custom_jvp
    def h(m):
        return jnp.sum(m**2)

    h.defjvp(lambda primals, tangents: (h(*primals), factor * jnp.sum(tangents[0] * primals[0])))
    return lambda: run(h)


def ruled_in_reverse(factor):
    @jax.custom_vjp
    def h(m):
        return jnp.sum(m**2)

    h.defvjp(lambda m: (h(m), m), lambda m, g: (factor * g * m,))
    return lambda: run(h)


class Energy:
    def __init__(self, k):
        self.k = k

    def value(self, m):
        return self.k * jnp.sum(m**4)

    def __call__(self, m):
        return self.value(m)


class Model(eqx.Module):
    k: jax.Array
    act: object = eqx.field(static=True)


class Own(cj.Noise):
    factor: float = eqx.field(static=True)
    size = 1
    additive = True

    def apply(self, mu, dS):
        return jnp.array([0.1, 0.2, 0.3]) * self.factor * dS


def powers(a, m, p):
    return a * jnp.sum(m**p)


def plane(c):
    """The Heisenberg algebra with another constant."""
    return cj.CentralExtension(cj.StructureConstants(np.zeros((2, 2, 2))), [[0, c], [-c, 0]])


def structure(k):
    """so(3) with another scale."""
    c = np.zeros((3, 3, 3))
    for i, j, l in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        c[i, j, l], c[j, i, l] = k, -k
    return cj.StructureConstants(c)


PARAM = lambda m, p: p * m * jnp.arange(1.0, 4.0)
ZERO, MINUS = np.zeros(3), -np.zeros(3)
ANGLE = lambda m, a: 0.1 * jnp.arctan2(a, -jnp.abs(m))
MEMBERS = {"members": 8, "mu0": np.linspace(-1.0, 1.0, 24).reshape(8, 3)}
FAMILIES = {
    "a bit of a literal": [force(lambda m, k=k: k * m * jnp.array([1.0, 2.0, 3.0])) for k in (0.3, UP(0.3), 0.1, 1.0)],
    "the sign of a literal zero": [force(lambda m, k=k: ANGLE(m, k)) for k in (0.0, -0.0)],
    "the type of a literal": [
        force(lambda m, k=k: k * m + jnp.arange(3) * k / 2 * m) for k in (1, 1.0, True, np.float32(1), np.int8(1))
    ],
    "an exponent": [force(lambda m, k=k: jnp.abs(m[::-1]) ** k) for k in (2, 2.0, 3, UP(2.0), jnp.int32(2))],
    "an imaginary zero": [
        force(lambda m, k=k: jnp.imag(jnp.log(lax.complex(-jnp.abs(m), 0 * m) + k))) for k in (0.0j, -0.0j, 0.1j)
    ],
    "a bit of an array": [captured(np.array([0.1, k, 0.3])) for k in (0.2, UP(0.2), 1.0, UP(1.0), 0.0, 5e-324)],
    "zeros of an array": [captured(a, ANGLE) for a in (ZERO, MINUS, np.array([0.0, -0.0, 0.0]), np.zeros(3, int))],
    "complex zeros": [
        captured(a, lambda m, a: jnp.imag(jnp.log(lax.complex(-jnp.abs(m), -0.0 * jnp.abs(m)) + a)))
        for a in (0j * ZERO, np.conj(0j * ZERO), -(0j * ZERO), 1j + 0j * ZERO)
    ],
    "the type of an array": [
        captured(np.array([1, 0, 2], dtype), lambda m, a: jnp.array([0.1, 0.2, 0.3]) * (m * (a / 3) + (a - 3) // 2))
        for dtype in (float, np.float32, np.float16, int, np.int8, np.uint8, np.uint32)
    ],
    "the shape of an array": [
        captured(np.array([0.1, 0.2, 0.3]).reshape(s), lambda m, a: jnp.sum(a + m, axis=0) * m)
        for s in ((3,), (3, 1), (1, 3))
    ],
    "an array captured or given": [
        captured(np.array([0.1, 0.2, 0.3])),
        lambda: run(forcing=lambda m, p: p * m, params=np.array([0.1, 0.2, 0.3])),
        lambda: run(forcing=lambda m, p: m * p, params=np.array([0.1, 0.2, 0.3])),
        lambda: run(forcing=lambda m, p: p["a"] * m, params={"a": np.array([0.1, 0.2, 0.3])}),
    ],
    "an array that changes": [mutated, mutated],
    "branches": [
        force(lambda m, k=k, g=g: lax.cond(m[0] > k, jnp.sin, lambda x: 0.3 * g(x), m))
        for k, g in ((0.5, jnp.cos), (0.7, jnp.cos), (0.5, jnp.tan), (UP(0.6), jnp.cos))
    ],
    "loops": [
        force(lambda m, k=k, n=n, r=r: lax.scan(lambda c, x: (k * c + x, c), m, jnp.stack([m] * n), reverse=r)[0])
        for k, n, r in ((0.5, 3, False), (0.5, 4, False), (UP(0.5), 3, False), (0.5, 3, True))
    ],
    "indices": [force(lambda m, i=i: 0.1 * m * m[i]) for i in (0, 1, -1, slice(0, 1), slice(None, None, -1))],
    "functions with rules": [ruled(2.0), ruled(3.0), ruled(UP(2.0)), ruled_in_reverse(2.0), ruled_in_reverse(3.0)],
    "objects": [
        lambda: run(Energy(0.5)),
        lambda: run(Energy(UP(0.5))),
        lambda: run(Energy(0.5).value),
        lambda: run(Energy(0.7).value),
        lambda: run(functools.partial(powers, 0.3, p=3)),
        lambda: run(functools.partial(powers, 0.3, p=4)),
        lambda: run(jax.jit(lambda m: 0.3 * jnp.sum(m**4))),
    ],
    "static leaves of params": [
        lambda act=act, k=k: run(lambda m, p: jnp.sum(p.act(m) * p.k), params=Model(jnp.array([0.1, 0.4, k]), act))
        for act, k in ((jnp.sin, 0.3), (jnp.cos, 0.3), (jnp.sin, 0.0), (jnp.sin, 1.0))
    ],
    "other leaves of params": [
        lambda w=w: run(
            lambda m, p: jnp.sum(m**4) * (0.3 if p["w"] == "a" else 0.5) * p["k"], params={"w": w, "k": 1.0}
        )
        for w in ("a", "b", None)
    ],
    "params": [
        lambda p=p: run(forcing=PARAM, params=p)
        for p in (0.3, UP(0.3), 0, 1, 0.0, -0.0, True, np.float32(0.3), np.array([0.3, 0.3, 0.3]), np.array([0.3]))
    ],
    "a sign of zero in params": [lambda p=p: run(forcing=ANGLE, params=p) for p in (0.0, -0.0, ZERO, MINUS)],
    "algebras": [
        lambda a=a: run(algebra=a)
        for a in (SO3, structure(1.0), structure(-1.0), structure(UP(1.0)), plane(1.0), plane(-1.0), plane(UP(1.0)))
    ],
    "sides": [lambda s=s: run(side=s, forcing=lambda m: 0.1 * m[::-1]) for s in ("left", "right")],
    "noise": [
        lambda n=n: run(noise=n)
        for n in (
            cj.salt([0.1, 0.2, 0.3]),
            cj.salt([0.1, UP(0.2), 0.3]),
            cj.salt([0.0, 1.0, 0.0]),
            cj.salt([0.0, -1.0, 0.0]),
            [cj.salt([0.1, 0.2, 0.3]), cj.salt([0.3, 0.2, 0.1])],
            [cj.salt([0.3, 0.2, 0.1]), cj.salt([0.1, 0.2, 0.3])],
            [lambda m: 0.1 * m[0] ** 2],
            [lambda m: 0.1 * m[1] ** 2],
            Own(1.0),
            Own(UP(1.0)),
        )
    ],
    "paths": [
        lambda o=o: run(noise=cj.salt([0.1, 0.2, 0.3]), **o)
        for o in (
            {"key": 1},
            {"key": jax.random.key(1)},
            {"key": 2},
            {"driver": cj.Increments(np.array([[0.1], [0.2]])), "key": None},
            {"driver": cj.Increments(np.array([[0.1], [UP(0.2)]])), "key": None},
        )
    ],
    "times": [
        lambda o=o: run(**o)
        for o in ({}, {"dt": 0.05}, {"dt": 0.2}, {"t0": 0.1, "t1": 0.3}, {"t1": 0.2 + 1e-11}, {"dt": UP(0.1)})
    ],
    "what is saved": [
        lambda f=f: run(save=f)
        for f in (
            lambda m: m[0],
            lambda m: m[1],
            lambda m: 0.3 * m,
            lambda m: UP(0.3) * m,
            lambda m: jnp.arctan2(jnp.asarray(ZERO), -m * m),
            lambda m: jnp.arctan2(jnp.asarray(MINUS), -m * m),
            lambda m: {"b": m[0], "a": m[1]},
            lambda m: {"a": m[0], "b": m[1]},
        )
    ],
    "statistics": [
        lambda r=r: run(reduce=r, **MEMBERS)
        for r in (
            cj.Mean(),
            cj.Covariance(),
            cj.Quantiles(low=-1.0, high=1.0, bins=16),
            cj.Quantiles(low=-1.0, high=1.5, bins=16),
            cj.Quantiles(low=-1.0, high=1.0, bins=17),
        )
    ],
    "params by member": [
        lambda p=p: run(forcing=PARAM, params=0.3, **MEMBERS, **p) if not p else ensemble_of(p["p"])
        for p in ({}, {"p": np.linspace(0, 1, 8)}, {"p": np.linspace(0, 1, 8)[::-1].copy()}, {"p": 0.3}, {"p": UP(0.3)})
    ],
    "derivatives given": [
        lambda: run(lambda m: 0.5 * m @ m + m[0] ** 3),
        lambda: run(lambda m: 0.5 * m @ m + m[0] ** 3, gradient=lambda m: m + 3 * m**2 * jnp.array([1.0, 0.0, 0.0])),
        lambda: run([lambda m: 0.5 * m @ m, lambda m: m[0] ** 3]),
    ],
    "dissipation": [lambda k=k: run(dissipation=lambda m, dt: m * jnp.exp(-k * dt)) for k in (0.5, UP(0.5), 0.0)],
    "methods": [
        lambda i=i: run(lambda m: jnp.sum(m**4) + m[0] * m[1], integrator=i, t1=0.8, dt=0.4)
        for i in (
            cj.HeunMK(),
            cj.RKMK("rk4"),
            cj.RKMK("rk4", tau=cj.Cayley()),
            cj.RKMK("rk4", drift_free=False),
            cj.Heun(),
        )
    ],
}
SLOW = {
    "implicit methods": [
        lambda i=i: run(lambda m: jnp.sum(m**4) + m[0] * m[1], integrator=i, t1=0.8, dt=0.4)
        for i in (cj.TMK(), cj.TMK(drift_free=False), cj.TMK(tau=cj.Cayley()), cj.LieMidpoint(), cj.RKMK("gauss4"))
    ],
    "products": [
        lambda a=a: run(
            lambda m: jnp.sum(m**2 * jnp.arange(1.0, 10.0) ** 0.5) + m[0] * m[4],
            algebra=a,
            mu0=np.linspace(-1, 1, 9),
        )
        for a in (
            cj.Product(SO3, copies=3),
            cj.Product(SO3, structure(1.0), SO3),
            cj.Product(structure(-1.0), SO3, SO3),
            cj.Product(SO3, cj.SE3()),
            cj.Product(cj.SE3(), SO3),
        )
    ],
    "by XLA": [
        lambda k=k, v=v: v(**k)
        for k in ({"backend": "xla"},)
        for v in (
            lambda **o: run(forcing=lambda m: ANGLE(m, jnp.asarray(ZERO)), **o),
            lambda **o: run(forcing=lambda m: ANGLE(m, jnp.asarray(MINUS)), **o),
            lambda **o: run(forcing=lambda m: ANGLE(m, 0.0), **o),
            lambda **o: run(forcing=lambda m: ANGLE(m, -0.0), **o),
            lambda **o: run(forcing=lambda m: 0.3 * m[::-1], **o),
            lambda **o: run(forcing=lambda m: UP(0.3) * m[::-1], **o),
        )
    ],
}


def ensemble_of(p):
    """Eight members with parameters given to `ensemble`."""
    system = cj.System(SO3, SQUARES, params=0.5, forcing=PARAM)
    sol = cj.ensemble(system, t1=0.2, dt=0.1, integrator=EULER, params=p, **MEMBERS)
    return [np.asarray(sol.mu)]


def digests(families, reverse=False):
    """A digest of what each variant gives, in this order or in reverse."""
    cases = [(name, k, fn) for name in families for k, fn in enumerate({**FAMILIES, **SLOW}[name])]
    out = {}
    for name, k, fn in cases[::-1] if reverse else cases:
        try:
            rows = [(x.shape, str(x.dtype), x.tobytes()) for x in fn()]
        except Exception as error:  # is a result, too
            rows = [type(error).__name__, str(error)]
        out[f"{name}, {k}"] = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return out
