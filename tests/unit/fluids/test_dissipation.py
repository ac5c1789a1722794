"""Viscosity, drag and stirring, split off by Strang's rule: exact where alone, of order 2, stored and resumed."""

import numpy as np
import pytest

import coadjoint as cj
from coadjoint.fluids import Sphere, Torus, random_field

METHOD = cj.IsospectralMidpoint()


def test_a_steady_flow_decays_at_the_rates_of_its_modes():
    """A zonal flow with viscosity, hyperviscosity, drag and stirring: each coefficient as its own equation says."""
    sphere = Sphere(9)
    zonal = np.where(sphere.eigenvalues > 0, 0.0, 0.0)
    zonal[[2, 6, 12]] = 1.0, -0.5, 0.3
    f = np.zeros(81)
    f[6] = 0.2
    damped = {"viscosity": 0.01, "hyperviscosity": 1e-3, "hyperviscosity_order": 2, "drag": 0.1, "stirring": f}
    system, W = cj.models.euler_sphere(9, rotation=1.0, omega=zonal, **damped)
    assert "Casimirs change by dissipation" in repr(system)
    sol = cj.solve(system, W, t1=2.0, dt=0.25, integrator=METHOD)
    gamma = 0.01 * sphere.eigenvalues + 1e-3 * sphere.eigenvalues**2 + 0.1
    exact = zonal * np.exp(-2.0 * gamma) + f * (1 - np.exp(-2.0 * gamma)) / gamma
    np.testing.assert_allclose(cj.fluids.of(sol).vorticity_coefficients(sol.mu[-1]), exact, atol=1e-13)
    assert "change by a torque, dissipation or stirring" in repr(sol)


@pytest.mark.slow
def test_strang_splitting_is_of_order_two():
    """Against small steps: halving dt takes a quarter of the error."""
    system, W = cj.models.sine_euler(9, omega=random_field(Torus(9), 1), noise_modes=None, viscosity=0.1, drag=0.2)
    ends = [
        cj.solve(system, W, t1=0.8, dt=0.8 / k, save_every=k, integrator=METHOD).mu[-1] for k in (4, 8, 16, 32, 256)
    ]
    errors = [np.abs(x - ends[-1]).max() for x in ends[:-1]]
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.15)


@pytest.mark.slow
def test_white_stirring_has_its_variance():
    """From rest, for a short time: the mean enstrophy of an ensemble is ½ t Σ of what the fields have."""
    options = {"noise_modes": None, "stirring_shells": (1, 1), "stirring_amplitude": 0.3}
    system, W = cj.models.sine_euler(3, omega=np.zeros((3, 3)), **options)
    flow = cj.fluids.of(system)
    run = cj.ensemble(
        system,
        W,
        members=2000,
        t1=0.1,
        dt=0.05,
        key=0,
        save_every=2,
        save=lambda W: flow.enstrophy(W),
        reduce=cj.Mean(),
    )
    # Modes (1, 0), (0, 1), (1, 1), (1, −1) are rounded to shell 1: cosine and sine each, of mean square 2 · 0.3².
    expected = 0.5 * 0.1 * 8 * 2 * 0.3**2
    assert abs(run.reduced["mean"][-1] - expected) < 5 * run.reduced["standard_error"][-1]


@pytest.mark.slow
def test_a_dissipative_run_is_stored_and_gone_on_with(tmp_path):
    options = {"viscosity": 0.05, "drag": 0.1, "stirring_shells": (1, 1), "stirring_amplitude": 0.1}
    system, W = cj.models.sine_euler(9, omega=random_field(Torus(9), 1), **options)
    whole = cj.solve(system, W, t1=0.8, dt=0.1, key=0, integrator=METHOD, out=tmp_path / "whole.zarr")
    cj.solve(system, W, t1=0.4, dt=0.1, key=0, integrator=METHOD, out=tmp_path / "part.zarr")
    again = cj.resume(tmp_path / "part.zarr", t1=0.8)
    np.testing.assert_array_equal(again.mu, whole.mu)
    assert cj.open(tmp_path / "part.zarr").attrs["configuration.integrator.type"] == "Dissipative"


def test_what_is_refused():
    torus = cj.models.sine_euler
    for make, message in {
        lambda: torus(9, viscosity=-1.0): "viscosity must not be below 0, not -1.0",
        lambda: torus(9, drag=-1.0): "drag must not be below 0",
        lambda: torus(9, hyperviscosity=1.0, hyperviscosity_order=1): "hyperviscosity_order must be at least 2",
        lambda: torus(9, stirring=np.ones((4, 4))): "stirring must be values on a square grid",
        lambda: torus(9, stirring_shells=(3, 9)): "stirring_shells must be",
        lambda: torus(9, stirring_shells=(1, 2), stirring_amplitude=(1, 2, 3)): "stirring_amplitude must be one real",
        lambda: cj.System(cj.SO3(), lambda m: m @ m, dissipation=lambda m, dt: dt): "dissipation must return a state",
    }.items():
        with pytest.raises(ValueError, match=message):
            make()
    system, W = torus(9, viscosity=1.0)
    with pytest.raises(TypeError, match="group=True needs steps that are group actions, but the system"):
        cj.solve(system, W, t1=1.0, dt=0.1, key=0, group=True)


def test_any_system_may_dissipate():
    """A rigid body that loses angular momentum: native code and XLA agree, members too; |π| falls as it should."""

    def energy(m):
        return 0.5 * m @ (m / np.array([1.0, 2.0, 3.0]))

    system = cj.System(cj.SO3(), energy, dissipation=lambda m, dt: np.e ** (-0.5 * dt) * m)
    start = np.array([1.0, 0.5, -0.3])
    native, xla = (cj.solve(system, start, t1=1.0, dt=0.1, backend=b) for b in ("native", "xla"))
    np.testing.assert_allclose(native.mu, xla.mu, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(native.mu[-1]), np.exp(-0.5) * np.linalg.norm(start), rtol=1e-13)
    many = cj.ensemble(system, start, members=3, t1=1.0, dt=0.1)
    np.testing.assert_allclose(many.mu[2], native.mu, atol=1e-14)
