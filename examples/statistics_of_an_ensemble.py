"""Mean, covariance and quantiles of an ensemble whose members are not saved.

A vector on the sphere with isotropic noise, dΠ = σ Π × ∘ dW, forgets its direction: E Π(t) = e^{−σ²t} Π(0). A method
whose step is one rotation by the increments has E Π_n = fⁿ Π_0 with f = (1 + 2(1 − a²)e^{−a²/2})/3 and a² = σ²dt
exactly. The run distinguishes the two.
"""

import jax.numpy as jnp
import numpy as np

import coadjoint as cj

SIGMA, DT, T = 1.0, 0.25, 1.0


def run(members: int = 2**18, integrator: cj.Integrator = cj.TMK()) -> cj.Ensemble:
    """The statistics at every step."""
    system = cj.System(cj.SO3(), lambda Pi: 0.0 * Pi[0], [cj.salt(SIGMA * jnp.eye(3))])
    reduce = {
        "mean": cj.Mean(),
        "covariance": cj.Covariance(),
        "spread": cj.Quantiles([0.05, 0.5, 0.95], low=-1.0, high=1.0),
    }
    start = jnp.array([0.0, 0.0, 1.0])
    return cj.ensemble(system, start, members=members, t1=T, dt=DT, key=5, integrator=integrator, reduce=reduce)


def expected() -> tuple[float, float]:
    """The exact mean of the method, and that of the equation."""
    a2 = SIGMA**2 * DT
    return ((1.0 + 2.0 * (1.0 - a2) * np.exp(-a2 / 2.0)) / 3.0) ** round(T / DT), np.exp(-(SIGMA**2) * T)


if __name__ == "__main__":
    found = run()
    mean, error = (found.reduced["mean"][k][-1, 2] for k in ("mean", "standard_error"))
    print("mean {:.5f} ± {:.5f}; of the method {:.5f}, of the process {:.5f}".format(mean, error, *expected()))
    print("covariance at the end:\n", np.round(found.reduced["covariance"]["covariance"][-1], 4))
    print("quantiles of Π_z at the end:", np.round(found.reduced["spread"]["quantiles"][-1, :, 2], 3))
    print(found.to_xarray())
