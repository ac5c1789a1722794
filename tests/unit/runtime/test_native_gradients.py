"""Derivatives of runs by native code: beside the scan of XLA, and beside central differences."""

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
            same(jax.grad(partial(loss, adjoint_memory=100 + keep))(ARGS), by_xla[1])
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
    """Forward over the native adjoint, by XLA."""
    x = {"mu0": ARGS["mu0"], "params": ARGS["params"], "dS": DS}
    v = jax.tree.map(jnp.ones_like, x)
    along = lambda adjoint: jax.jit(lambda x: jax.jvp(jax.grad(partial(loss, adjoint=adjoint)), (x,), (v,))[1])(x)
    same(along("native"), along("xla"), 1e-10)


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
    """Large steps: the full kernel takes them, in the run and in its adjoint; unsolved steps raise."""
    system, mu0 = cj.models.rigid_body(alpha=None)

    def end(m, adjoint, dt=0.6):
        return jnp.sum(cj.solve(system, 3.0 * m, t1=8 * dt, dt=dt, adjoint=adjoint).mu @ jnp.arange(3.0))

    same(*(jax.value_and_grad(partial(end, adjoint=a))(mu0) for a in ("native", "xla")), 1e-11)
    with pytest.raises(cj.UnsolvedStepError):
        jax.grad(partial(end, adjoint="native", dt=40.0))(mu0)
