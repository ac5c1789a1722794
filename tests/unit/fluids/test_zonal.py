"""Zonal means of velocity and vorticity, against means of fields on a grid."""

import jax
import numpy as np
import pytest

import coadjoint as cj


@pytest.mark.parametrize("model, options, axis", [
    ("euler_sphere", {"rotation": 1.0}, -1), ("sine_euler", {}, -2), ("multilayer_qg", {}, -1),
    ("multilayer_qg", {"surface": "torus"}, -2),
])  # fmt: skip
def test_zonal_means(model, options, axis):
    """Also of a stack of states, and compiled."""
    system, mu0 = getattr(cj.models, model)(9, key=2, **options)
    flow = cj.fluids.of(system)
    mean = flow.velocity(mu0, 20)[0].mean(axis)
    np.testing.assert_allclose(flow.zonal_mean(mu0, 20), mean, atol=1e-14)
    np.testing.assert_allclose(flow.zonal_mean(mu0, 20, "vorticity"), flow.vorticity(mu0, 20).mean(axis), atol=1e-14)
    stack = np.stack([mu0, 2 * np.asarray(mu0)])
    changed = flow.zonal_mean(stack, 20)
    assert changed.shape == (2, *mean.shape)
    np.testing.assert_allclose(jax.jit(lambda mu: flow.zonal_mean(mu, 20))(mu0), mean, atol=1e-14)


def test_solid_rotation():
    """It is U cos(latitude), towards the east, at given latitudes too."""
    omega = np.zeros(81)
    omega[cj.fluids.index(1, 0)] = 2 * 0.3 * np.sqrt(4 * np.pi / 3)
    system, W = cj.models.euler_sphere(9, omega=omega)
    latitudes = np.array([-1.0, 0.0, 0.7])
    np.testing.assert_allclose(cj.fluids.of(system).zonal_mean(W, latitudes), 0.3 * np.cos(latitudes), atol=1e-14)
    with pytest.raises(ValueError, match="field must be"):
        cj.fluids.of(system).zonal_mean(W, field="speed")
