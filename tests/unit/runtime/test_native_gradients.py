"""Derivatives of runs by native code: beside the scan of XLA, and beside central differences."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

DT, STEPS = 0.05, 12
SYSTEM, MU0 = cj.models.heavy_top()
DS = 0.1 * np.random.default_rng(0).standard_normal((STEPS, SYSTEM.n_noise))
WEIGHT = np.arange(1.0, 7.0)
ARGS = {"mu0": np.asarray(MU0), "params": SYSTEM.params, "dS": DS}


def loss(x, system=SYSTEM, driver=None, **options):
    """A number made of all saved states."""
    driver = {"driver": cj.Increments(x["dS"])} if driver is None else driver
    options = {"adjoint": "native", "save_every": 3, **options}
    run = cj.solve(system.with_params(x["params"]), x["mu0"], t1=STEPS * DT, dt=DT, **driver, **options)
    values = run.mu if run.mu is not None else run.saved
    return jnp.sum(jnp.sin(values) @ WEIGHT)


def same(found, wanted, rtol=1e-12):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(1.0, np.max(np.abs(b), initial=0.0)))


@pytest.fixture(scope="module")
def by_xla():
    """Value and gradient as XLA differentiates a scan."""
    return jax.jit(jax.value_and_grad(partial(loss, adjoint="xla")))(ARGS)


def test_gradient(by_xla):
    """With respect to the start, params and increments, at once and inside jit; from checkpoints too."""
    found = jax.jit(jax.value_and_grad(loss))(ARGS)
    same(found, by_xla)
    info = cj.last_gradient_info()
    assert (info.backend, info.reason, info.checkpoint_every) == ("native", "", 0)
    same(jax.grad(loss)(ARGS), by_xla[1])
    for keep in (5, 12):  # segments of unequal length
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coadjoint.runtime.gradients.calls._LEAST", keep)
            patch.setattr("coadjoint.runtime.gradients.calls._SEGMENT", 1)
            same(jax.jit(jax.grad(partial(loss, adjoint_memory=100 + keep)))(ARGS), by_xla[1])
            assert cj.last_gradient_info().checkpoint_every == keep


def test_forward_mode_and_its_transpose(by_xla):
    """The tangent run agrees with the adjoint; reverse over forward gives the adjoint again."""
    v = jax.tree.map(lambda a: jnp.cos(jnp.arange(1.0, a.size + 1)).reshape(a.shape), ARGS)
    dot = lambda a, b: sum(jax.tree.leaves(jax.tree.map(jnp.vdot, a, b)))
    value, slope = jax.jvp(loss, (ARGS,), (v,))
    same((value, slope), (by_xla[0], dot(by_xla[1], v)))
    back = jax.grad(lambda v: jax.jvp(loss, (ARGS,), (v,))[1])(v)
    same(back, by_xla[1])


@pytest.mark.slow
def test_second_derivatives():
    """Forward over the native adjoint, natively: as by XLA, and as central differences of gradients."""
    x = {"mu0": ARGS["mu0"], "params": ARGS["params"], "dS": DS}
    v = jax.tree.map(jnp.ones_like, x)
    along = lambda adjoint: jax.jit(lambda x: jax.jvp(jax.grad(partial(loss, adjoint=adjoint)), (x,), (v,))[1])
    found = along("native")(x)
    assert "coadjoint_second" in str(jax.make_jaxpr(along("native"))(x))
    same(found, along("xla")(x))
    gradient, e = jax.jit(jax.grad(loss)), 1e-4
    plus, minus = (gradient(jax.tree.map(lambda a, b, s=s: a + s * e * b, x, v)) for s in (1, -1))
    same(found, jax.tree.map(lambda a, b: (a - b) / (2 * e), plus, minus), 1e-6)


def test_a_hessian_is_native():
    """By members of the native derivative of the adjoint, beside central differences."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    end = lambda m, **o: jnp.sum(cj.solve(system, m, t1=0.8, dt=0.1, save_every=4, **o).mu @ jnp.arange(3.0))
    found = jax.jit(jax.hessian(partial(end, adjoint="native")))(mu0)
    assert "coadjoint_second" in str(jax.make_jaxpr(jax.hessian(end))(mu0))
    e = 1e-4
    columns = [(jax.grad(end)(mu0 + d) - jax.grad(end)(mu0 - d)) / (2 * e) for d in e * np.eye(3)]
    np.testing.assert_allclose(found, np.stack(columns), atol=1e-7)


@pytest.mark.slow
def test_a_third_derivative_is_of_xla():
    """Beside central differences of the native second derivative."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    end = lambda m: jnp.sum(cj.solve(system, m, t1=0.8, dt=0.1, save_every=4).mu @ jnp.arange(3.0))
    along = lambda m: jax.jvp(jax.grad(end), (m,), (jnp.ones(3),))[1] @ jnp.ones(3)
    found, e = jax.grad(along)(mu0), 1e-4
    differences = [(along(mu0 + d) - along(mu0 - d)) / (2 * e) for d in e * np.eye(3)]
    np.testing.assert_allclose(found, differences, atol=1e-6)


def test_members():
    """vmap of a gradient, a gradient of an ensemble, and one with params by member."""
    scale = 1.0 + 0.1 * jnp.arange(3.0)
    every = jax.vmap(lambda s: jax.grad(lambda m: loss(ARGS | {"mu0": m * s}))(ARGS["mu0"]))(scale)
    for k, s in enumerate(scale):
        same(every[k], jax.grad(lambda m, s=s: loss(ARGS | {"mu0": m * s}))(ARGS["mu0"]))

    def total(x, adjoint):
        params = jax.tree.map(lambda p: p * (1.0 + 0.1 * jnp.arange(5.0)).reshape(-1, *[1] * p.ndim), x["params"])
        run = cj.ensemble(
            SYSTEM, x["mu0"], members=5, params=params, t1=STEPS * DT, dt=DT, key=0, save_every=4, adjoint=adjoint
        )
        return jnp.sum(jnp.sin(run.mu) @ WEIGHT)

    x = {"mu0": ARGS["mu0"], "params": ARGS["params"]}
    native, xla = (jax.jit(jax.grad(partial(total, adjoint=a)))(x) for a in ("native", "xla"))
    same(native, xla)


def test_a_run_that_is_compiled_is_native():
    """Not differentiated: the same states as a run that is not traced, and what was computed how."""
    plain = cj.solve(SYSTEM, MU0, t1=STEPS * DT, dt=DT, driver=cj.Increments(DS), save_every=3)
    run = jax.jit(lambda m: cj.solve(SYSTEM, m, t1=STEPS * DT, dt=DT, driver=cj.Increments(DS), save_every=3))(MU0)
    np.testing.assert_allclose(run.mu, plain.mu, rtol=0, atol=1e-15)
    assert run.stats.backend == "native" and int(run.stats.iterations) == int(plain.stats.iterations)


def test_another_length_compiles_no_kernel(by_xla, monkeypatch):
    """Kernels do not depend on the number of steps, nor on what is saved of them."""
    jax.grad(loss)(ARGS)

    def refuse(*_, **__):
        raise AssertionError("compiled again")

    monkeypatch.setattr("coadjoint.runtime.gradients.kernels.compile_step", refuse)
    same(jax.grad(partial(loss, save_every=3, adjoint_memory=2**20))(ARGS), by_xla[1])


def test_the_group_element_and_saved_functions():
    """A loss over attitudes, and over values of save=, with respect to g₀ and μ₀."""

    def attitude(x, adjoint):
        g0 = cj.SE3().group_exp(x["angle"])
        run = cj.solve(
            SYSTEM, x["mu0"], t1=STEPS * DT, dt=DT, driver=cj.Increments(DS), group=True, g0=g0, adjoint=adjoint,
            save=lambda mu: mu[:2] ** 2, save_every=4,
        )  # fmt: skip
        return jnp.sum(jnp.sin(run.g) * jnp.arange(16.0).reshape(4, 4)) + jnp.sum(run.saved)

    x = {"mu0": ARGS["mu0"], "angle": np.full(6, 0.2)}
    same(jax.grad(partial(attitude, adjoint="native"))(x), jax.grad(partial(attitude, adjoint="xla"))(x))


def test_reasons():
    """What is not native is reported, or an error if native code is required."""
    jax.grad(partial(loss, adjoint="auto", throw=False))(ARGS)
    assert "throw=False requires the fallback solvers" in cj.last_gradient_info().reason
    with pytest.raises(ValueError, match='adjoint="native" is not possible for this run: throw=False'):
        jax.grad(partial(loss, throw=False))(ARGS)
    with pytest.raises(ValueError, match="adjoint must be"):
        loss(ARGS, adjoint="fast")


def test_without_the_interface_of_xla(by_xla, monkeypatch):
    """Through Python, if XLA's interface for foreign functions is not there."""
    from stepcompiler import jax_calls

    monkeypatch.setattr(jax_calls, "way_of_calling", lambda: jax_calls.Way(None, "tested"))
    same(jax.jit(jax.grad(lambda x: loss(x) * 1.0))(ARGS), by_xla[1])


def test_steps_that_the_fast_kernel_does_not_take():
    """Large steps: the full kernel takes them, in the run and in its adjoint; steps that do not converge raise."""
    system, mu0 = cj.models.rigid_body(alpha=None)

    def end(m, adjoint, dt=0.6):
        return jnp.sum(cj.solve(system, 3.0 * m, t1=8 * dt, dt=dt, adjoint=adjoint).mu @ jnp.arange(3.0))

    same(*(jax.value_and_grad(partial(end, adjoint=a))(mu0) for a in ("native", "xla")), 1e-11)
    with pytest.raises(cj.UnsolvedStepError):
        jax.grad(partial(end, adjoint="native", dt=40.0))(mu0)


def test_an_adjoint_step_that_no_kernel_takes_raises(monkeypatch):
    """If the branches of an adjoint step cannot be compiled, the error names the way around."""
    from stepcompiler import jax_calls

    algebra = cj.StructureConstants(np.asarray([[[0, 0, 0], [0, 0, 1], [0, -1, 0]], [[0, 0, -1], [0, 0, 0], [1, 0, 0]],
                                                [[0, 1, 0], [-1, 0, 0], [0, 0, 0]]]))  # fmt: skip
    system, mu0 = cj.System(algebra, lambda mu: mu[0] ** 2 + 2 * mu[1] ** 2), jnp.array([3.0, 2.0, 1.0])
    method = cj.HeunMK(drift_free=False)
    end = lambda m: jnp.sum(cj.solve(system, m, t1=0.4, dt=0.1, integrator=method, adjoint="native").mu)
    numerical = (end(1.0001 * mu0) - end(0.9999 * mu0)) / 0.0002
    np.testing.assert_allclose(jax.grad(end)(mu0) @ mu0, numerical, rtol=1e-6)
    for key, entry in jax_calls._entries.items():
        if entry.kernel.signature.backward:
            monkeypatch.setitem(jax_calls._entries, key, entry._replace(full=lambda: None))
    with pytest.raises((RuntimeError, ValueError), match='Pass adjoint="xla" to solve'):
        jax.grad(end)(mu0)


def test_a_kernel_that_fails_when_jax_lowers_the_run(monkeypatch):
    """XLA computes the run then, and stats report it, although JAX had traced the run before."""
    from coadjoint.runtime.gradients import calls
    from stepcompiler.errors import NotCompilable

    system, mu0 = cj.models.rigid_body(alpha=None)
    run = lambda m: cj.solve(system, m, t1=0.7, dt=0.1)
    wanted = jax.jit(jax.vmap(run))(jnp.stack([mu0, mu0]))
    assert wanted.stats.backend == "native" and wanted.stats.reason == ""

    def fail(*_):
        raise NotCompilable("A test.")

    monkeypatch.setattr(calls, "kernels_of", fail)
    found = jax.jit(jax.vmap(lambda m: run(m * 1.0)))(jnp.stack([mu0, mu0]))
    assert found.stats.backend == "xla" and "A test. XLA computes the run" in found.stats.reason
    same(found.mu, wanted.mu)


def test_in_a_shard_map():
    """As without it, with check_vma=False; an error requires that."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("m",)), jax.sharding.PartitionSpec("m")
    every = jax.vmap(jax.value_and_grad(lambda m: jnp.sum(cj.solve(system, m, t1=0.7, dt=0.1).mu)))
    states = jnp.stack([mu0, 1.1 * mu0])
    mapped = partial(jax.shard_map, every, mesh=mesh, in_specs=spec, out_specs=spec)
    same(jax.jit(mapped(check_vma=False))(states), every(states))
    with pytest.raises(TypeError, match="Pass check_vma=False to shard_map"):
        mapped()(states)


def test_the_time_step_and_the_initial_time():
    """At a fixed number of steps with fixed increments: native and by XLA, beside central differences; by member."""
    h = lambda mu, t: 0.5 * mu @ (mu / jnp.arange(1.0, 4.0)) + jnp.sin(t) * mu[0] ** 2
    system, mu0 = cj.System(cj.SO3(), h, noise=[cj.salt(jnp.array([0.1, 0.2, 0.3]))]), jnp.array([0.5, -0.4, 0.8])

    def number(x, adjoint="auto"):
        driver = cj.Increments(DS[:, :1])
        run = cj.solve(system, mu0, dt=x[0], t0=x[1], steps=STEPS, driver=driver, adjoint=adjoint, save_every=4)
        return jnp.sum(run.mu @ jnp.arange(3.0)) + jnp.sum(run.t**2)

    x, e = jnp.array([0.11, 0.3]), 1e-4
    wanted = np.array([(number(x + v) - number(x - v)) / (2 * e) for v in e * np.eye(2)])
    for adjoint in ("native", "xla"):
        found = jax.grad(partial(number, adjoint=adjoint))(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-7)
        np.testing.assert_allclose(jax.jacfwd(partial(number, adjoint=adjoint))(x), found, rtol=1e-12)
    assert cj.last_gradient_info().backend == "xla"
    every = jax.jit(jax.vmap(jax.grad(number)))(jnp.stack([x, 1.1 * x]))
    same(every[1], jax.grad(number)(1.1 * x))
    mean = lambda dt: jnp.mean(cj.ensemble(system, mu0, members=3, dt=dt, steps=4, driver=cj.Increments(DS[:4, :1])).mu)
    np.testing.assert_allclose(jax.grad(mean)(0.1), (mean(0.1 + e) - mean(0.1 - e)) / (2 * e), rtol=1e-6)


@pytest.mark.parametrize("adjoint", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_growth_is_reported(adjoint):
    """At rotation about the middle axis: the rate of the instability, once over a run in which it has grown."""
    system = cj.System(cj.SO3(), lambda mu, p: 0.5 * mu @ (mu / p), params=jnp.array([4.0, 2.0, 1.0]))
    rate, middle = np.sqrt((1 / 2 - 1 / 4) * (1 - 1 / 2)), jnp.array([0.0, 1.0, 0.0])

    def number(mu0, params, steps=600):
        run = cj.solve(system.with_params(params), mu0, t1=steps * 0.1, dt=0.1, save_every=steps, adjoint=adjoint)
        return run.mu[-1] @ jnp.arange(1.0, 4.0)

    for argument in (0, 1):  # also if the initial state is not differentiated
        with pytest.warns(RuntimeWarning, match="the gradient grows by a factor of") as caught:
            jax.block_until_ready(jax.jit(jax.grad(number, argument))(middle, system.params))
        found = float(str(caught[0].message).split("at a rate of ")[1].split()[0])
        assert abs(found - rate) < 0.02
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.block_until_ready(jax.vmap(jax.grad(partial(number, steps=60)))(jnp.stack([middle] * 2), jnp.ones((2, 3))))
