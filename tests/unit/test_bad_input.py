"""What a user got wrong is an error at once: its type, the argument and what was given, before a step is compiled."""

import math
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

UP = np.array([0.0, 0.0, 1.0])
NAN, INF = math.nan, math.inf


def quadratic(m):
    return 0.5 * m @ m


BETA = np.array([0.1, 0.2, 0.3])
# Made here, and never run: a solve that got as far as its first step would have to compile it.
QUIET = cj.System(cj.SO3(), lambda m: 0.5 * m @ m + 1.25 * m[0])
NOISY = cj.System(cj.SO3(), lambda m: 0.5 * m @ m + 1.5 * m[0], cj.salt(np.eye(3)[:2]))
TUNED = cj.System(cj.SO3(), lambda m, p: p["k"] * m @ p["A"] @ m, params={"k": 1.0, "A": np.eye(3)})
COUNTED = cj.System(cj.SO3(), lambda m, p: p["n"] * m @ m, params={"n": 1})
PULSE = cj.inputs.piecewise([0, 1, 2], [0.0, 1.0])
SWITCHED = cj.System(cj.SO3(), lambda m, t: m @ m * PULSE(t))
MATRICES = cj.System(cj.SU(3), lambda m: jnp.sum(jnp.abs(m) ** 2))


def system(hamiltonian=quadratic, noise=(), algebra=cj.SO3(), **options):
    return lambda: cj.System(algebra, hamiltonian, noise, **options)


def solve(which=QUIET, mu0=UP, **options):
    return lambda: cj.solve(which, mu0, **({"t1": 1.0, "dt": 0.1} | options))


def ensemble(which=QUIET, mu0=UP, **options):
    return lambda: cj.ensemble(which, mu0, **({"members": 4, "t1": 1.0, "dt": 0.1} | options))


class Fields:
    """Noise as an object, as wrong as wanted."""

    def __init__(self, size, apply=lambda mu, dS: dS[0] * mu):
        self.size, self.apply = size, apply


CASES = {
    # Systems.
    "algebra is a class": (system(algebra=cj.SO3), TypeError, "algebra must be a LieAlgebra such as SO3"),
    "algebra is nothing": (system(algebra=None), TypeError, "algebra must be a LieAlgebra .* not None"),
    "side": (system(side="up"), ValueError, "side must be one of 'left', 'right', not 'up'"),
    "side is nothing": (system(side=None), ValueError, "side must be one of 'left', 'right', not None"),
    "side is a list": (system(side=["left"]), ValueError, r"side must be one of 'left', 'right', not \['left'\]"),
    "hamiltonian is a number": (system(3.0), TypeError, "hamiltonian must be a function of the state, not a float"),
    "hamiltonian is a vector": (
        system(lambda m: m),
        ValueError,
        r"hamiltonian must return one real number, not shape \(3,\)",
    ),
    "hamiltonian is complex": (
        system(lambda m: 1j * m[0]),
        ValueError,
        "hamiltonian must return one real number, not .*complex128",
    ),
    "hamiltonian is a tuple": (
        system(lambda m: (m[0], m[1])),
        ValueError,
        "hamiltonian must return one real number, not a tuple",
    ),
    "hamiltonian is nothing": (system(lambda m: None), ValueError, "hamiltonian must return one real number, not None"),
    "hamiltonian of other shape": (system(lambda m: m @ jnp.ones(4)), TypeError, None),
    "hamiltonian without params": (
        system(quadratic, params={"k": 1.0}),
        TypeError,
        r"hamiltonian must have the signature hamiltonian\(mu, params\), not hamiltonian\(m\)",
    ),
    "noise is a number": (system(noise=3.0), TypeError, "noise must hold salt.* not a float"),
    "noise is a word": (system(noise="salt"), TypeError, "noise must hold salt.* not a str"),
    "noise is an array": (system(noise=BETA), TypeError, r"noise must hold salt\(beta\)"),
    "noise is a list of numbers": (system(noise=[1.0, 2.0]), TypeError, "noise must hold salt.* not a float"),
    "noise is a vector": (
        system(noise=lambda m: m),
        ValueError,
        r"noise must return one real number, not shape \(3,\)",
    ),
    "beta too short": (system(noise=cj.salt([1.0, 2.0])), ValueError, r"beta of shape \(3,\), .* not \(2,\)"),
    "beta of rows too long": (
        system(noise=cj.salt(np.ones((2, 4)))),
        ValueError,
        r"beta of shape \(3,\), .* not \(2, 4\)",
    ),
    "beta without rows": (system(noise=cj.salt(np.ones((0, 3)))), ValueError, r"not \(0, 3\)"),
    "beta complex": (system(noise=cj.salt(1j * UP)), TypeError, "real beta"),
    "beta NaN": (lambda: cj.salt([0.0, NAN, 0.0]), ValueError, "beta must be finite"),
    "beta is words": (lambda: cj.salt("abc"), TypeError, "beta must be an array of numbers"),
    "size 0": (system(noise=Fields(0)), ValueError, "noise.size must be at least 1, not 0"),
    "size 1.5": (system(noise=Fields(1.5)), TypeError, "noise.size must be a whole number, not 1.5"),
    "apply of wrong shape": (
        system(noise=Fields(2, lambda mu, dS: dS)),
        ValueError,
        r"apply.* shape \(3,\), not \(2,\)",
    ),
    "gradient is a number": (system(gradient=3.0), TypeError, "gradient must be a function of the state, not a float"),
    "gradient of wrong shape": (
        system(gradient=lambda m: m[:2]),
        ValueError,
        r"gradient must return shape \(3,\), not \(2,\)",
    ),
    # States.
    "mu0 too long": (solve(mu0=np.ones(4)), ValueError, r"mu0 must have shape \(3,\) for SO3, not \(4,\)"),
    "mu0 a matrix": (solve(mu0=np.eye(3)), ValueError, r"mu0 must have shape \(3,\) for SO3, not \(3, 3\)"),
    "mu0 a number": (solve(mu0=1.0), ValueError, r"mu0 must have shape \(3,\) for SO3, not \(\)"),
    "mu0 NaN": (solve(mu0=[0, NAN, 1]), ValueError, r"mu0 must be finite: entry \(1,\) is nan"),
    "mu0 infinite": (solve(mu0=jnp.array([INF, 0, 1])), ValueError, r"mu0 must be finite: entry \(0,\) is inf"),
    "mu0 complex": (solve(mu0=1j * UP), TypeError, "mu0 is complex, but states of SO3 are real"),
    "mu0 words": (solve(mu0=["a", "b", "c"]), TypeError, "mu0 must be an array of numbers"),
    "mu0 ragged": (solve(mu0=[[1.0], [1.0, 2.0]]), TypeError, "mu0 must be an array of numbers"),
    "mu0 nothing": (solve(mu0=None), TypeError, "mu0 must be an array of numbers"),
    "mu0 truths": (solve(mu0=[True, False, True]), TypeError, "mu0 must be an array of numbers, not of type bool"),
    "mu0 not skew": (solve(MATRICES, np.eye(3)), ValueError, "mu0 is not a state of SU: it is not skew-Hermitian"),
    "mu0 not traceless": (solve(MATRICES, 1j * np.eye(3)), ValueError, "mu0 is not a state of SU: its trace is"),
    # Times.
    "dt 0": (solve(dt=0), ValueError, "dt must be above 0, not 0"),
    "dt negative": (solve(dt=-0.1), ValueError, "dt must be above 0, not -0.1"),
    "dt NaN": (solve(dt=NAN), ValueError, "dt must be finite, not nan"),
    "dt infinite": (solve(dt=INF), ValueError, "dt must be finite, not inf"),
    "dt a word": (solve(dt="fast"), TypeError, "dt must be a number, not str"),
    "dt nothing": (solve(dt=None), TypeError, "dt must be a number, not NoneType"),
    "dt a vector": (solve(dt=[0.1, 0.2]), TypeError, "dt must be a number, not list"),
    "dt traced": (
        lambda: jax.jit(lambda dt: solve(dt=dt)().mu)(0.1),
        TypeError,
        "dt is traced by JAX: give steps=, the number of steps, in place of t1",
    ),
    "dt traced, with a path that depends on it": (
        lambda: jax.jit(lambda dt: cj.solve(NOISY, UP, dt=dt, steps=10, key=0).mu)(0.1),
        TypeError,
        "dt is traced by JAX, but the increments and jumps of Brownian depend on it: pass",
    ),
    "dt traced, with save_at": (
        lambda: jax.jit(lambda dt: cj.solve(QUIET, UP, dt=dt, steps=10, save_at=[0.1]).mu)(0.1),
        TypeError,
        "save_at= requires numbers as t0 and dt",
    ),
    "t0 traced, with an input that switches": (
        lambda: jax.jit(lambda t0: cj.solve(SWITCHED, UP, dt=0.1, t0=t0, steps=10).mu)(0.1),
        TypeError,
        "an input of hamiltonian switches at t = 1: derivatives with respect to switch times",
    ),
    "neither t1 nor steps": (lambda: cj.solve(QUIET, UP, dt=0.1), ValueError, "give either t1 or steps, not t1=None"),
    "t1 and steps": (solve(steps=10), ValueError, "give either t1 or steps, not t1=1.0 and steps=10"),
    "t1 traced": (
        lambda: jax.jit(lambda t: solve(t1=t)().mu)(1.0),
        TypeError,
        "t1 must be a number known before the run",
    ),
    "t1 before t0": (solve(t1=-1.0), ValueError, "t1 must be above t0 = 0, not -1"),
    "t1 at t0": (solve(t1=2.0, t0=2.0), ValueError, "t1 must be above t0 = 2, not 2"),
    "t1 NaN": (solve(t1=NAN), ValueError, "t1 must be finite, not nan"),
    "t0 infinite": (solve(t0=-INF), ValueError, "t0 must be finite, not -inf"),
    "t1 no multiple": (solve(t1=1.05), ValueError, r"whole multiple of dt, but \(1\.05 − 0\)/0\.1 = 10\.5: take t1 = "),
    "t1 below dt": (solve(t1=0.04), ValueError, "whole multiple of dt.*take t1 = 0.1, or dt = 0.04"),
    # Saving.
    "save_every 0": (solve(save_every=0), ValueError, "save_every must be at least 1, not 0"),
    "save_every negative": (solve(save_every=-2), ValueError, "save_every must be at least 1, not -2"),
    "save_every 2.0": (solve(save_every=2.0), TypeError, "save_every must be a whole number, not 2.0"),
    "save_every True": (solve(save_every=True), TypeError, "save_every must be a whole number, not True"),
    "save_every 3 of 10": (solve(save_every=3), ValueError, "save_every must divide the number of steps, 10, but is 3"),
    "save a word": (solve(save="mu"), TypeError, "save must be a function of the state, not a str"),
    "save of other shape": (solve(save=lambda m: m @ jnp.ones(4)), TypeError, None),
    # Paths.
    "key and driver": (solve(NOISY, key=0, driver=cj.Brownian(0)), ValueError, "give key or driver, not both"),
    "neither key nor driver": (solve(NOISY), ValueError, r"the system has 2 noise\(s\): give key= .* or driver="),
    "key 1.5": (solve(NOISY, key=1.5), TypeError, "key must be an integer or a JAX key, not 1.5"),
    "key negative": (solve(NOISY, key=-3), ValueError, "key must be at least 0, not -3"),
    "driver an array": (
        solve(NOISY, driver=np.zeros((10, 2))),
        TypeError,
        r"driver must be a Driver such as Brownian\(key\), OU\(tau\) or Increments\(dS\), not ndarray",
    ),
    "driver a class": (
        solve(NOISY, driver=cj.Brownian),
        TypeError,
        r"driver must be a Driver such as Brownian\(key\), OU\(tau\) or Increments\(dS\)",
    ),
    "increments too short": (
        solve(NOISY, driver=cj.Increments(np.zeros((9, 2)))),
        ValueError,
        "dS must have 10 rows.* not 9",
    ),
    "increments too long": (
        solve(NOISY, driver=cj.Increments(np.zeros((11, 2)))),
        ValueError,
        "dS must have 10 rows.* not 11",
    ),
    "increments too wide": (
        solve(NOISY, driver=cj.Increments(np.zeros((10, 3)))),
        ValueError,
        "dS must have 2 columns.* not 3",
    ),
    "increments too narrow": (
        solve(NOISY, driver=cj.Increments(np.zeros(10))),
        ValueError,
        "dS must have 2 columns.* not 1",
    ),
    "increments NaN": (lambda: cj.Increments([[0.0], [NAN]]), ValueError, r"dS must be finite: dS\[1, 0\] is nan"),
    "increments without noise": (
        solve(driver=cj.Increments(np.zeros(10))),
        ValueError,
        "dS must have 0 columns.* not 1",
    ),
    "dt off the grid": (
        solve(NOISY, driver=cj.Brownian(0, grid=0.15)),
        ValueError,
        "dt = 0.1 does not fit grid = 0.15",
    ),
    # Integrators.
    "system is a tuple": (solve((QUIET, UP)), TypeError, "system must be a System, not tuple"),
    "integrator is a class": (
        solve(integrator=cj.TMK),
        TypeError,
        r"integrator must be an Integrator .*did you mean TMK\(\)",
    ),
    "integrator is a word": (
        solve(integrator="tmk"),
        TypeError,
        "integrator must be an Integrator such as TMK.* not 'tmk'",
    ),
    "tol 0": (lambda: cj.TMK(tol=0), ValueError, "tol must be above 0, not 0"),
    "tol negative": (lambda: cj.ImplicitMidpoint(tol=-1e-14), ValueError, "tol must be above 0, not -1e-14"),
    "tol NaN": (lambda: cj.Trapezoidal(tol=NAN), ValueError, "tol must be finite, not nan"),
    "solver": (lambda: cj.TMK(solver="magic"), ValueError, "solver must be one of 'auto', .* not 'magic'"),
    "max_steps 0": (lambda: cj.TMK(max_steps=0), ValueError, "max_steps must be at least 1, not 0"),
    "max_steps 2.5": (lambda: cj.TMK(max_steps=2.5), TypeError, "max_steps must be a whole number, not 2.5"),
    # Params.
    "params for none": (lambda: QUIET.with_params({"k": 1.0}), ValueError, "params was given, but the system has none"),
    "params of other structure": (lambda: TUNED.with_params({"k": 1.0}), ValueError, "params must have the structure"),
    "params of other shape": (
        lambda: TUNED.with_params({"k": 1.0, "A": np.eye(2)}),
        ValueError,
        r"params\['A'\] must have shape \(3, 3\), .* not \(2, 2\)",
    ),
    "params of other kind": (
        lambda: COUNTED.with_params({"n": 0.5}),
        TypeError,
        r"params\['n'\] is of type float64, but .* int64",
    ),
    # Ensembles.
    "members 0": (ensemble(members=0), ValueError, "members must be at least 1, not 0"),
    "members negative": (ensemble(members=-1), ValueError, "members must be at least 1, not -1"),
    "members 2.0": (ensemble(members=2.0), TypeError, "members must be a whole number, not 2.0"),
    "members True": (ensemble(members=True), TypeError, "members must be a whole number, not True"),
    "states for other members": (
        ensemble(mu0=np.ones((5, 3))),
        ValueError,
        "mu0 has 5 states, but there are 4 members",
    ),
    "states NaN": (ensemble(mu0=np.full((4, 3), NAN)), ValueError, r"mu0 must be finite: entry \(0, 0\) is nan"),
    "states complex": (ensemble(mu0=np.ones((4, 3), complex)), TypeError, "mu0 is complex"),
    "ensemble without key": (ensemble(NOISY), ValueError, "give key="),
    "ensemble save_every": (
        ensemble(save_every=4),
        ValueError,
        "save_every must divide the number of steps, 10, but is 4",
    ),
    "ensemble params for none": (ensemble(params={"k": 1.0}), ValueError, "params was given, but the system has none"),
    "ensemble params structure": (ensemble(TUNED, params=[1.0]), ValueError, "params must have the structure"),
    "ensemble params shape": (
        ensemble(TUNED, params={"k": np.ones(3), "A": np.eye(3)}),
        ValueError,
        r"params\['k'\] must have shape \(\), or \(4,\) .* not \(3,\)",
    ),
    "ensemble params kind": (
        ensemble(COUNTED, params={"n": np.ones(4)}),
        TypeError,
        r"params\['n'\] is of type float64, but .* int64",
    ),
    "reduce a class": (ensemble(reduce=cj.Mean), TypeError, r"reduce must be an object with init, .*write Mean\(\)"),
    "reduce a word": (
        ensemble(reduce="mean"),
        TypeError,
        "reduce must be an object with init, update, merge and result, but it has no init",
    ),
    # Models.
    "inertia 0": (
        lambda: cj.models.rigid_body(inertia=(1, 0, 1)),
        ValueError,
        r"inertia must be three numbers above 0, not \(1\.0, 0\.0, 1\.0\)",
    ),
    "inertia negative": (
        lambda: cj.models.heavy_top(inertia=(4, 2, -1)),
        ValueError,
        r"inertia must be three numbers above 0, not \(4\.0, 2\.0, -1\.0\)",
    ),
    "inertia NaN": (lambda: cj.models.heavy_top(inertia=(4, NAN, 1)), ValueError, "inertia must be finite"),
    "inertia of two": (
        lambda: cj.models.heavy_top(inertia=(4, 2)),
        ValueError,
        r"inertia must be 3 numbers, .* not shape \(2,\)",
    ),
    "inertia words": (
        lambda: cj.models.rigid_body(inertia="heavy"),
        TypeError,
        "inertia must be 3 numbers, not 'heavy'",
    ),
    "alpha of two": (lambda: cj.models.heavy_top(alpha=(1, 2)), ValueError, r"alpha must be .* not of shape \(2,\)"),
    "alpha infinite": (
        lambda: cj.models.rigid_body(alpha=(1, 2, INF)),
        ValueError,
        r"alpha must be finite, not \[1\.0, 2\.0, inf\]",
    ),
    "chi NaN": (lambda: cj.models.heavy_top(chi=(0, 0, NAN)), ValueError, "chi must be finite"),
    "pi0 of four": (
        lambda: cj.models.rigid_body(pi0=(1, 2, 3, 4)),
        ValueError,
        r"pi0 must be 3 numbers, .* not shape \(4,\)",
    ),
    "gamma0 words": (lambda: cj.models.heavy_top(gamma0="down"), TypeError, "gamma0 must be 3 numbers, not 'down'"),
    "preset": (
        lambda: cj.models.heavy_top("sleeping"),
        ValueError,
        "preset must be one of 'lagrange', .* not 'sleeping'",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name, compilations):
    call, error, message = CASES[name]
    began = time.perf_counter()
    with compilations() as count, pytest.raises(error, match=message):
        call()
    assert time.perf_counter() - began < 1.0
    assert count.n <= 3  # an array was converted, perhaps; the step of a run takes more


def test_an_error_inside_a_hamiltonian_says_where_it_was_raised():
    with pytest.raises(TypeError) as caught:
        CASES["hamiltonian of other shape"][0]()
    assert any("while tracing hamiltonian at" in note and "shape (3,)" in note for note in caught.value.__notes__)


def test_a_wrong_gradient_is_found(compilations):
    """It is compared with autodiff at one state, which needs a few small programs but not the step."""
    with compilations() as count, pytest.raises(ValueError, match=r"gradient does not agree .* differ by"):
        cj.System(cj.SO3(), quadratic, gradient=lambda m: -m)
    assert count.n < 20
    cj.System(cj.SO3(), quadratic, gradient=lambda m: m)


def test_float32_is_refused():
    """With JAX_ENABLE_X64=0 JAX computes in float32: reported at once, with the fix."""
    program = """
import coadjoint as cj
for make in (lambda: cj.System(cj.SO3(), lambda m: m @ m), lambda: cj.models.heavy_top()):
    try:
        make()
    except ValueError as error:
        print(error)
"""
    environment = os.environ | {"JAX_ENABLE_X64": "0"}
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    lines = out.stdout.strip().splitlines()
    assert len(lines) == 2, out.stderr
    assert all("coadjoint computes in float64, but JAX is set to float32" in line for line in lines)
    assert all("Unset JAX_ENABLE_X64" in line for line in lines)
