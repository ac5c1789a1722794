"""Splitting: explicit steps that are Poisson maps, for Hamiltonians that are sums of exactly solvable parts.

A rigid body is split axis by axis automatically. The Maxwell–Bloch equations have two parts and two noises, one of
which is not SALT. You pass the parts of your own system as a list: `System(algebra, [h_1, h_2, …])`.
"""

import jax.numpy as jnp
import numpy as np

import coadjoint as cj


def rigid_body(t1: float = 1e4) -> float:
    """The largest energy error of a rigid body without noise: it does not grow with t1."""
    system, pi0 = cj.models.rigid_body(alpha=None)
    energy = cj.solve(system, pi0, t1=t1, dt=0.1, integrator=cj.Strang(), save_every=100).energy()
    return float(np.max(np.abs(energy - energy[0])))


def maxwell_bloch() -> tuple[float, float]:
    """With noise: the error of the Casimir after 10⁵ steps, and the distance of Strang's path to TMK's."""
    system, start = cj.models.maxwell_bloch()
    driver = cj.Brownian(0, grid=0.001)
    ends = {}
    for name, integrator in (("Strang", cj.Strang()), ("TMK", cj.TMK())):
        ends[name] = cj.solve(system, start, t1=1.0, dt=0.001, driver=driver, integrator=integrator).mu[-1]
    long = cj.solve(system, start, t1=1e3, dt=0.01, key=0, integrator=cj.Strang(), save_every=100)
    return float(long.casimir_errors().max()), float(np.linalg.norm(ends["Strang"] - ends["TMK"]))


def potential() -> float:
    """A heavy top in a field that is not uniform: its potential couples all γ_i, which commute, and is one part."""
    parts = [lambda mu, i=i: 0.5 * mu[i] ** 2 / (4.0, 2.0, 1.0)[i] for i in range(3)]
    parts.append(lambda mu: -mu[5] + 0.3 * mu[3] * mu[4] + 0.1 * jnp.exp(mu[3]))
    system = cj.System(cj.SE3(), parts)
    start = np.array([-0.7, 0.7, 0.3, -0.7, 0.6, 0.2])
    energy = cj.solve(system, start, t1=1e3, dt=0.05, integrator=cj.Strang(), save_every=20).energy()
    return float(np.max(np.abs(energy - energy[0])))


if __name__ == "__main__":
    print(f"rigid body, energy error up to t = 10⁴ and 10⁵: {rigid_body():.1e}, {rigid_body(1e5):.1e}")
    casimir, distance = maxwell_bloch()
    print(f"Maxwell–Bloch, Casimir error after 10⁵ steps: {casimir:.1e}; Strang and TMK differ by {distance:.1e}")
    print(f"heavy top in a field of your own, energy error: {potential():.1e}")
