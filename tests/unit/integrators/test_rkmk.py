"""Runge–Kutta–Munthe-Kaas methods: tableaux, maps τ, and errors. Orders are measured in verification."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.integrators import TABLEAUX

INERTIA = jnp.array([1.0, 2.0, 3.0])
START = np.array([0.6, -0.7, 0.9])


def body(noise=(), algebra=cj.SO3(), **options):
    return cj.System(algebra, lambda pi: 0.5 * pi @ (pi / INERTIA) + 0.05 * pi[0] ** 4, noise, **options)


def run(system, integrator, mu0=START, dt=0.25, **options):
    key = 0 if system.n_noise else None
    return cj.solve(system, mu0, t1=2.0, dt=dt, key=key, integrator=integrator, **options)


class Rotation(cj.Tau):
    """The Cayley transform of rotations, as a user would write it."""

    slant: float = 1.0

    def action(self, algebra, sigma, mu):
        half = 0.5 * sigma
        once = jnp.cross(mu, half)
        return mu + 2.0 / (1.0 + half @ half) * (once + jnp.cross(once, half))

    def dtauinv(self, algebra, sigma, zeta):
        return zeta - self.slant * 0.5 * jnp.cross(sigma, zeta) + 0.25 * (sigma @ zeta) * sigma


def test_heun_is_heun():
    """RKMK("heun") and HeunMK are the same scheme, with noise too."""
    system = body([cj.salt([0.3, -0.2, 0.5])])
    np.testing.assert_allclose(run(system, cj.RKMK("heun")).mu, run(system, cj.HeunMK()).mu, rtol=0, atol=1e-15)


def test_own_tau():
    """A τ of one's own: its Cayley transform gives what the library's does, and the Casimir."""
    sol, known = run(body(), cj.RKMK("rk4", Rotation())), run(body(), cj.RKMK("rk4", cj.Cayley()))
    np.testing.assert_allclose(sol.mu, known.mu, rtol=0, atol=1e-15)
    assert sol.casimir_errors().max() < 2e-15
    with pytest.raises(TypeError, match=r"group=True needs Rotation.group"):
        run(body(), cj.RKMK("rk4", Rotation()), group=True)


@pytest.mark.slow
def test_own_tau_in_the_midpoint_rule():
    """dτ* follows from dtauinv: the midpoint rule with one's own Cayley transform is the isospectral one."""
    system = body([cj.salt([0.3, -0.2, 0.5])])
    ends = [run(system, i).mu[-1] for i in (cj.LieMidpoint(Rotation()), cj.IsospectralMidpoint())]
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-14)


@pytest.mark.parametrize("tau", [cj.Exp(), cj.Cayley()])
@pytest.mark.parametrize("side", ["left", "right"])
def test_group_element(side, tau):
    """μ_n = Ad*_{g_n} μ₀ (left), Ad*_{g_n⁻¹} μ₀ (right), with g moved by τ."""
    sol = run(body(side=side), cj.RKMK("rk4", tau), group=True)
    g = np.asarray(sol.g[-1])
    np.testing.assert_allclose((g.T if side == "left" else g) @ START, sol.mu[-1], rtol=0, atol=1e-14)


@pytest.mark.slow
def test_matrices():
    """Both τ on su(3), with noise: order 4 for one equation, that of the path with straight pieces."""
    system, W0 = cj.models.sine_euler(n=3, amplitude=0.1)
    ends = []
    for tau in (cj.Exp(), cj.Cayley()):
        sol = run(system, cj.RKMK("rk4", tau), np.asarray(W0), dt=0.125)
        assert sol.casimir_errors().max() < 5e-15 and sol.stats.unsolved == 0
        ends.append(sol.mu[-1])
    assert 1e-12 < np.abs(ends[0] - ends[1]).max() < 1e-6


def test_tableaux():
    """Names and orders of those supplied; a tableau is a value."""
    assert {n: t.order for n, t in TABLEAUX.items()} == {
        "euler": 1,
        "midpoint": 2,
        "heun": 2,
        "rk4": 4,
        "gauss2": 2,
        "gauss4": 4,
    }
    assert [n for n, t in TABLEAUX.items() if not t.explicit] == ["gauss2", "gauss4"]
    own = cj.Tableau(np.array([[0, 0, 0], [1 / 3, 0, 0], [0, 2 / 3, 0]]), [1 / 4, 0, 3 / 4], order=3, name="heun3")
    assert own == cj.Tableau([[0, 0, 0], [1 / 3, 0, 0], [0, 2 / 3, 0]], [1 / 4, 0, 3 / 4], 3, "heun3")
    assert cj.RKMK(own).claims.order == 3 and hash(own)


def refused(message, kind=ValueError):
    return pytest.raises(kind, match=message)


def test_what_is_refused():
    """Each before anything is compiled."""
    with refused("tableau must be one of 'euler', 'midpoint', .* not 'rk5'"):
        cj.RKMK("rk5")
    with refused("tableau must be a Tableau or one of .* not 4", TypeError):
        cj.RKMK(4)
    with refused("order is given as 3, but the tableau breaks a condition of order 3: .* 0.333333 is 0.5"):
        cj.Tableau([[0, 0], [1, 0]], [0.5, 0.5], 3)
    with refused(r"A must have shape \(2, 2\), as b has 2 stages, not \(1, 2\)"):
        cj.Tableau([[0, 0]], [0.5, 0.5], 2)
    with refused(r"tau must be Exp\(\), Cayley\(\) or a Tau of your own, not .*did you mean Cayley\(\)\?", TypeError):
        cj.RKMK("rk4", cj.Cayley)
    with refused("dtauinv of Rotation does not belong to its action"):
        run(body(), cj.RKMK("rk4", Rotation(-1.0)))
    C = np.zeros((3, 3, 3))
    C[0, 1, 2], C[1, 0, 2] = 1, -1
    with refused("StructureConstants has no Cayley transform", TypeError):
        run(body(algebra=cj.StructureConstants(C)), cj.RKMK("rk4", cj.Cayley()))
    with refused(r"a tableau of order 1 is made for SALT noise"):
        run(body([lambda m: m[0] * m[1]]), cj.RKMK("euler"))
