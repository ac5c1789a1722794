"""Backends: they agree, unsupported plans have a reason, and the fallback solver takes steps that do not converge."""

import re
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.drivers import Needs
from coadjoint.runtime.backends import native, nonconverged_steps, path_sampling, step_kernels, xla
from coadjoint.runtime.backends.path_sampling import IncrementSource
from coadjoint.runtime.plan import Plan

OPTIMISED = {"xla_backend_optimization_level": 3}  # as a user's XLA has it, not that of the tests
INTEGRALS = [
    (1, 0.04, Needs()),
    (8, 0.02, Needs()),
    (1, None, Needs(Z=True)),
    (8, None, Needs(areas=True)),
    pytest.param(1, 0.005, Needs(Z=True, areas=True), marks=pytest.mark.slow),
    pytest.param(8, None, Needs(Z=True, areas=True, third=True), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    "members, channels, grid",
    [
        (1, 1, None),
        (1, 3, 0.03),
        (1, 2, 0.01),
        (24, 2, None),
        (24, 2, 0.003),
        (1, 21, None),
        (1, 17, 0.01),
        (16, 21, None),
    ],
)
def test_native_increments_are_those_of_the_driver_bit_for_bit(members, channels, grid):
    """Therefore a path does not depend on the program that draws it."""
    window = cj.Brownian(2**40 + 5, grid=grid).window(channels, 0.03, 0, 1)
    numbers = np.arange(7, 7 + members).reshape(-1, min(members, 8))
    source = IncrementSource(window, numbers, tuple(range(channels)))
    assert source.native is not None or source.motions is not None
    for b in 0, 2**33:
        drawn = source.draw(b, 32 * b + 7)
        expected = _block(window, np.arange(7, 31), b)[:members]  # as many for all cases: one program for many
        np.testing.assert_array_equal(np.moveaxis(drawn, -1, 1).reshape(members, 32, channels), expected)


@partial(jax.jit, compiler_options=OPTIMISED)
def _block(window, members, b):
    return jax.vmap(lambda m: window.block(m, b).S)(members)


@pytest.mark.parametrize("members, grid, needs", INTEGRALS)
def test_native_integrals_are_those_of_the_driver(members, grid, needs):
    """To round-off, bridged paths too: XLA fuses products and sums as it likes, and multiplies by 1/3."""
    window = cj.Brownian(5, grid=grid).window(2, 0.01, 0, 1, needs)
    numbers = np.arange(3, 3 + members).reshape(-1, min(members, 8))
    block = jax.jit(jax.vmap(lambda w, m: w.block(m, 2), (None, 0)), compiler_options=OPTIMISED)
    blocks = block(window, numbers.ravel())
    leaves = [np.asarray(x).reshape(members, 32, -1) for x in jax.tree.leaves(blocks)]
    source = IncrementSource(window, numbers, tuple(range(sum(x.shape[2] for x in leaves))))
    assert source.native is not None
    drawn = np.moveaxis(source.draw(2, 3 * 32), -1, 1).reshape(members, 32, -1)
    parts = np.split(drawn, np.cumsum([x.shape[2] for x in leaves])[:-1], axis=2)
    for x, y in zip(leaves, parts, strict=True):
        assert np.max(np.abs(x - y)) <= 1e-14 * np.max(np.abs(x))


CASES = {
    "heavy top": lambda: (*cj.models.heavy_top(), 0.01),
    "rigid body, nonlinear noise": lambda: (
        cj.System(
            cj.SO3(),
            lambda m: 0.5 * m @ (m / jnp.array([1.0, 2.0, 3.0])) + 0.1 * m[0] ** 4,
            [lambda m: 0.2 * m[0] * m[1]],
        ),
        jnp.array([0.5, -0.3, 0.8]),
        0.01,
    ),
    "some steps too large for the chord": lambda: (*cj.models.rigid_body(), 3.0),
}


@pytest.mark.parametrize("name", CASES)
def test_solve_and_ensemble_agree_across_backends(name):
    """Path, states and Casimirs; where native code fails a step, the fallback solver takes it."""
    system, mu0, dt = CASES[name]()
    steps, members = (8, 9) if dt > 1 else (40, 70)  # large steps may be chaotic: round-off grows with each
    run = {"t1": steps * dt, "dt": dt, "key": 3, "save_every": 4}
    native = cj.solve(system, mu0, **run), cj.ensemble(system, mu0, members=members, **run)
    run["backend"] = "xla"
    xla = cj.solve(system, mu0, **run), cj.ensemble(system, mu0, members=members, **run)
    for a, b in zip(native, xla, strict=True):
        assert (a.stats.backend, b.stats.backend) == ("native", "xla")
        assert b.stats.unsolved == 0 and a.stats.unsolved == 0
        assert (a.stats.most_iterations > 30) == (b.stats.most_iterations > 30) == (dt > 1)
        np.testing.assert_allclose(a.mu, b.mu, atol=1e-13)


def test_chains_above_dimension_16_are_native_and_take_fixed_points():
    """To the digits of the chord."""
    system, mu0 = cj.models.spin_chain(12)
    run = {"t1": 0.08, "dt": 0.02, "key": 3}
    auto, chord = (cj.solve(system, mu0, integrator=m, **run) for m in (cj.TMK(), cj.TMK(solver="chord")))
    assert (auto.stats.backend, auto.stats.reason) == ("native", "")
    assert chord.stats.backend == "native"  # as loops over arrays
    assert chord.stats.iterations < auto.stats.iterations
    np.testing.assert_allclose(auto.mu, chord.mu, atol=1e-13)


def test_where_fixed_points_fail_the_fallbacks_go_on():
    """With steps ten times those of an ordinary run."""
    system, mu0 = cj.models.spin_chain(6)
    hard = cj.solve(system, mu0, t1=3.2, dt=0.8, key=3)
    assert hard.stats.backend == "native" and hard.stats.most_iterations > 30
    assert hard.stats.unsolved == 0 and hard.stats.residual < 1e-14


def test_exponentials_of_large_elements_are_native(monkeypatch):
    """Steps of SU(3) with |ad_σ| above one, which `likely` excludes: the full kernel takes them, not XLA."""
    weights = jnp.asarray(np.random.default_rng(0).uniform(1.0, 9.0, (3, 3)))
    system = cj.System(cj.SU(3), lambda W: 0.5 * jnp.sum(weights * jnp.abs(W) ** 2))
    W = 1j * np.array([[1.0, 0.4, 0.1], [0.4, -0.3, 0.7], [0.1, 0.7, -0.7]])
    run = {"t1": 2.0, "dt": 0.25, "integrator": cj.HeunMK()}
    expected = cj.solve(system, W, backend="xla", **run)
    monkeypatch.setattr(nonconverged_steps.FallbackStepper, "_by_fallback", None)
    native = cj.solve(system, W, backend="native", **run)
    np.testing.assert_allclose(native.mu, expected.mu, rtol=0, atol=1e-12)


@pytest.mark.parametrize("slots", [1, 300, 512, 1000])
def test_what_is_saved_in_pieces_of_a_chunk(slots, monkeypatch):
    """Fewer, as many and more than a piece holds, of one trajectory and of members: the function of every state."""
    system, mu0 = cj.models.rigid_body()
    monkeypatch.setattr(Plan, "save_slots", slots)
    save = lambda m: {"cube": m**3, "size": jnp.sum(m**2)}
    run = {"t1": 7.0, "dt": 0.01, "key": 3}
    for states, saved in (
        (cj.solve(system, mu0, **run), cj.solve(system, mu0, save=save, **run)),
        (cj.ensemble(system, mu0, members=9, **run), cj.ensemble(system, mu0, members=9, save=save, **run)),
    ):
        assert saved.stats.backend == "native"
        np.testing.assert_allclose(saved.saved["cube"], states.mu**3, atol=1e-15)
        np.testing.assert_allclose(saved.saved["size"], np.sum(states.mu**2, axis=-1), atol=1e-15)


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_no_bit_depends_on_the_cut_where_steps_are_hard(backend, monkeypatch):
    """A step that does not converge is taken by the fallback solver, wherever chunks end; of ensembles too."""
    system, mu0, dt = CASES["some steps too large for the chord"]()
    options = {"t1": 40 * dt, "dt": dt, "key": 0, "save_every": 2, "backend": backend}
    whole, many = cj.solve(system, mu0, **options), cj.ensemble(system, mu0, members=9, **options)  # as many as above
    assert whole.stats.backend == backend and whole.stats.most_iterations > 30
    tune(monkeypatch, first_chunk=7, largest_chunk=7)
    cut = cj.solve(system, mu0, **options)
    np.testing.assert_array_equal(cut.mu, whole.mu)
    assert cut.stats.iterations == whole.stats.iterations
    np.testing.assert_array_equal(cj.ensemble(system, mu0, members=9, **options).mu, many.mu)


@pytest.mark.parametrize("dt", [0.05, 1.2])
def test_a_path_has_the_same_bits_drawn_with_the_steps_or_before_them(dt, monkeypatch):
    """In an ensemble the code of a step draws it, from even and odd steps, with and without steps that do not
    converge."""
    alpha = np.linspace(0.01, 0.3, 9)  # nine members: the second group is mostly padding

    def noise(mu, p):
        return p * mu[0] + mu[1]

    h = lambda mu, p: 0.5 * (mu[0] ** 2 / 4 + mu[1] ** 2 / 2 + mu[2] ** 2) - mu[5]
    system = cj.System(cj.SE3(), h, [noise, lambda mu, p: 0.1 * mu[2]], params=alpha[0])
    run = {"members": 9, "params": alpha, "t1": 35 * dt, "dt": dt, "key": 3, "save_every": 7, "backend": "native"}
    mu0 = cj.models.heavy_top()[1]
    tune(monkeypatch, first_chunk=7, largest_chunk=7)
    sources = []
    monkeypatch.setattr(path_sampling, "IncrementSource", lambda *args: sources.append(args) or IncrementSource(*args))
    drawn = cj.ensemble(system, mu0, **run)
    assert not sources
    monkeypatch.setattr(native, "drawn_with_steps", lambda plan: False)
    before = cj.ensemble(system, mu0, **run)
    assert sources
    np.testing.assert_array_equal(drawn.mu, before.mu)
    assert drawn.stats == before.stats and (drawn.stats.most_iterations > 30) == (dt > 1)


# Refusals.

RUN = {"mu0": np.ones(3) / 3, "t1": 0.01, "dt": 0.01, "integrator": cj.HeunMK()}


def test_a_refusal_says_why():
    """In the statistics and in what is printed; and where native code was asked for, in an error."""
    system, W0 = cj.models.sine_euler(9)
    run = {"t1": 0.5, "dt": 0.5, "key": 0, "integrator": cj.HeunMK()}
    sol = cj.solve(system, W0, **run)
    problem = "A step uses eigenvalues of a Hermitian matrix (`eigh`), which native code does not support."
    why = f"{problem} XLA computes the steps instead."
    assert (sol.stats.backend, sol.stats.reason) == ("xla", why) and f"xla: {why}" in repr(sol)
    with pytest.raises(ValueError, match=re.escape(f"backend='native' cannot take this run: {problem}")):
        cj.solve(system, W0, backend="native", **run)
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'native-gpu', 'native', 'xla', not 'gpu'"):
        cj.solve(system, W0, backend="gpu", **run)
    asked = cj.solve(system, W0, backend="xla", **run)
    assert (asked.stats.backend, asked.stats.reason) == ("xla", "")


def test_an_operation_without_a_rule_is_named():
    system = cj.System(cj.SO3(), lambda m: jnp.sum(jnp.linalg.eigvalsh(jnp.diag(m))))
    sol = cj.solve(system, **RUN)
    assert sol.stats.backend == "xla" and "`eigh`" in sol.stats.reason


def test_a_program_that_is_too_long_is_written_as_loops(monkeypatch):
    quartic = cj.System(cj.SO3(), lambda m: jnp.sum(m**4) + m[0])
    with monkeypatch.context() as short:
        tune(short, native_operations=50)
        sol = cj.solve(quartic, **RUN)
        assert sol.stats.backend == "native"  # as loops over arrays
    quintic = cj.System(cj.SO3(), lambda m: jnp.sum(m**5) + m[0])
    assert cj.solve(quintic, **RUN).stats.backend == "native"


def test_whatever_goes_wrong_while_native_code_is_made_is_a_refusal(monkeypatch):
    """Not only what is known not to work."""

    def broken(*_):
        raise IndexError("list index out of range")

    monkeypatch.setattr(sys.modules["stepcompiler.compile"], "_compile_step", broken)
    system = cj.System(cj.SO3(), lambda m: jnp.sum(m**6) + m[1])
    sol = cj.solve(system, **RUN)
    assert sol.stats.backend == "xla" and "list index out of range" in sol.stats.reason
    with pytest.raises(ValueError, match=r"cannot take this run: .*list index out of range"):
        cj.solve(cj.System(cj.SO3(), lambda m: jnp.sum(m**6) + m[2]), backend="native", **RUN)


@pytest.mark.parametrize(
    "h",
    [
        lambda m: 0.5 * m @ m + jnp.sum(m[0:0]),
        lambda m: jnp.sum(jnp.sort(m) * jnp.array([1.0, 2.0, 3.0])),
    ],
    ids=["an empty sum", "a sort"],
)
def test_what_used_to_end_in_an_error_is_native(h):
    system = cj.System(cj.SO3(), h)
    mu0, run = np.array([0.3, -0.2, 0.9]), {"t1": 0.1, "dt": 0.01}
    sol = cj.solve(system, mu0, **run)
    assert sol.stats.backend == "native"
    np.testing.assert_allclose(sol.mu, cj.solve(system, mu0, backend="xla", **run).mu, atol=1e-14)


def test_params_through_zero_and_one_are_the_same_code():
    """Their numbers are inputs: another value compiles nothing, and NaN goes through a zero as it does in XLA."""
    system = cj.System(
        cj.SO3(), lambda m, p: 0.5 * p["a"] * m @ m + p["b"] * jnp.sqrt(m[0] - 2.0), params={"a": 0.5, "b": 0.5}
    )
    run = RUN | {"throw": False}
    cj.solve(system, **run)
    made = len(step_kernels._kernels)
    for a, b in [(0.0, 0.5), (1.0, 0.0), (0.0, 0.0)]:
        other = system.with_params({"a": a, "b": b})
        one, two = cj.solve(other, **run), cj.solve(other, backend="xla", **run)
        assert one.stats.backend == "native" and one.stats.unsolved == two.stats.unsolved == 1
    assert len(step_kernels._kernels) == made


def test_the_careful_program_is_not_made_for_easy_steps(monkeypatch):
    """Fallbacks take long to compile: a run that needs none must not wait for them."""

    def fallback(*_):
        raise AssertionError("the fallback solver was called")

    monkeypatch.setattr(xla, "_fallback", fallback)
    system, mu0 = cj.models.heavy_top()
    assert cj.solve(system, mu0, t1=0.1, dt=0.01, key=0, backend="xla").stats.unsolved == 0


def test_steps_after_a_careful_one_are_taken_by_the_program_before_it(compilations):
    """One program more for hard steps, not two: what comes back must not look otherwise than what was given."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    run = {"backend": "xla", "save": lambda m: m[0]}  # a new function: nothing of it is compiled yet
    cj.solve(system, mu0, t1=0.2, dt=0.1, **run)
    jnp.asarray(np.ones(1, bool))  # a program, too, of its own
    with compilations() as count:
        hard = cj.solve(system, mu0, t1=20.0, dt=5.0, **run)
    assert hard.stats.most_iterations > 60 and count.n == 1


def test_unknown_names_are_not_exported():
    for name in cj.__all__:
        assert getattr(cj, name) is not None
    assert {
        "open",
        "run",
        "resume",
        "SolveInfo",
        "Increment",
        "Needs",
        "Driver",
        "Reducer",
        "Ensemble",
        "Stats",
    } <= set(dir(cj))
    assert not {"numerics", "native", "runtime", "store"} & set(dir(cj))
