"""Random systems over lattices: sweeps of native code against XLA and against a step by NumPy."""

from collections import Counter

import jax
import numpy as np
import pytest
from lattice_programs import JaxNamespace, Lattice, NumpyNamespace, params_of
from tuned import tune

import coadjoint as cj

DT, STEPS, MEMBERS = 0.1, 2, 3


@pytest.fixture(autouse=True)
def sweeps(monkeypatch):
    """Native code takes lattices of 128 sites by sweeps, as it does large ones."""
    tune(monkeypatch, native_operations=10)


class PerSite:
    """A noise that has an increment for each site."""

    additive = False

    def __init__(self, lattice, N):
        self.lattice, self.size = lattice, N

    def apply(self, mu, dS, params):
        return self.lattice.stirred(JaxNamespace, mu, dS, params)


def system_of(lattice, N, params):
    forcing = {} if lattice.force is None else {"forcing": lambda mu, p: lattice.forcing(JaxNamespace, mu, p)}
    noise = [] if lattice.noise is None else [PerSite(lattice, N)]
    return cj.System(cj.SO3() ** N, lambda mu, p: lattice.energy(JaxNamespace, mu, p), noise, params=params, **forcing)


def turned(mu, zeta):
    """A rotation of mu about zeta: dμ/dt = μ × ζ for a unit of time."""
    angle = np.sqrt(np.sum(zeta * zeta))
    axis = zeta / angle if angle else zeta
    along = axis * (axis @ mu)
    return along + np.cos(angle) * (mu - along) + np.sin(angle) * np.cross(mu, axis)


def stepped(lattice, mu, dS, params, sites):
    """A step of Euler's method at some sites, with the gradient by differences of long numbers."""
    wide = lambda x: np.asarray(x, np.longdouble)
    p, mu, delta = {k: wide(x) for k, x in params.items()}, wide(mu), np.longdouble(1e-5)
    zeta = np.zeros_like(mu)
    if lattice.force is not None:
        zeta = zeta + lattice.forcing(NumpyNamespace, mu if lattice.exact else mu.astype(float), p) * DT
    if lattice.noise is not None:
        noise = lambda mu: lattice.stirred(NumpyNamespace, mu, wide(dS), p)
        field = noise(mu)
        along = delta * np.cross(mu.reshape(-1, 3), field.reshape(-1, 3)).reshape(-1)  # Stratonovich's correction
        zeta = zeta + field + 0.5 * (noise(mu + along) - noise(mu - along)) / (2 * delta)
    out = []
    for site in sites:
        gradient = np.zeros(3, np.longdouble)
        for a in range(3):
            ends = []
            for sign in (1, -1):
                moved = mu.copy()
                moved[3 * site + a] += sign * delta
                ends.append(lattice.energy(NumpyNamespace, moved, p))
            gradient[a] = (ends[0] - ends[1]) / (2 * delta)
        out.append(turned(mu[3 * site : 3 * site + 3], gradient * DT + zeta[3 * site : 3 * site + 3]))
    return np.array(out, float)


def runs(lattice, N, members):
    """The run of a system as a function of the backend, its start and parameters, and the increments of a step."""
    rng = np.random.default_rng([lattice.seed, N])
    params, start = params_of(N, lattice.seed), rng.standard_normal(3 * N)
    dS = 0.1 * rng.standard_normal((STEPS, N))
    method = (cj.HeunMK if members else cj.EulerMaruyamaMK)(remove_stabiliser=False)
    given = {"t1": STEPS * DT, "dt": DT, "integrator": method}
    given |= {"driver": cj.Increments(dS)} if lattice.noise else {}
    system = system_of(lattice, N, params)
    scales = 1.0 + 0.1 * np.arange(MEMBERS)
    each = {"params": {k: np.multiply.outer(scales, x) for k, x in params.items()}, "members": MEMBERS}

    def run(backend):
        if members:
            return np.asarray(cj.ensemble(system, start, backend=backend, save_every=1, **each, **given).saved)
        return np.asarray(cj.solve(system, start, backend=backend, **given).mu)

    return run, start, params, dS[0]


def compare(seed, N, counts, members=False, sites=1):
    """One random system, by all ways; one of eight that native code does not take is compared nevertheless."""
    lattice = Lattice(seed)
    run, start, params, dS = runs(lattice, N, members)
    results = {}
    try:
        results["native"] = run("native")
    except ValueError as error:
        reason = str(error).split(": ", 1)[1]
        assert "An error occurred" not in reason, (seed, N, reason, lattice.names)
        counts[reason] += 1
        if seed % 8:
            return
    results["xla"] = run("xla")
    counts["native" if "native" in results else "XLA alone"] += 1
    tolerance = 1e-9 if lattice.exact else 1e-4
    off = np.abs(results.get("native", results["xla"]) - results["xla"]).max()
    assert off < tolerance, (seed, N, off, lattice.names)
    if sites and not members:
        some = np.random.default_rng(seed).choice(N, sites, replace=False)
        by_numpy = stepped(lattice, start, dS, params, some)
        for name, rows in results.items():
            off = np.abs(rows[1].reshape(N, 3)[some] - by_numpy).max()
            assert off < 1e-6, (name, seed, N, off, lattice.names)


def fuzz(seeds, show=False):
    counts = Counter()
    for seed in seeds:
        compare(seed, (128, 1024, 4096)[seed % 3], counts, members=seed % 5 == 4)
        if show and seed % 50 == 49:
            jax.clear_caches()
            print(seed + 1, dict(counts), flush=True)
    return counts


def test_random_lattices():
    """A slice of those that `make verify` runs."""
    fuzz(range(6))


@pytest.mark.slow
def test_many_random_lattices():
    counts = fuzz(range(1000, 2500), show=True)
    assert counts["native"] > 300, counts
