"""Reducers with a state per member, against NumPy on all saved values; `save` and `observe` with params and time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.experiments.experiment import run as run_file
from coadjoint.runtime import plan as planning
from coadjoint.runtime.backends import gpu_runtime, observer
from stepcompiler.cache import LRUCache

MEMBERS = 37
RUN = {"members": MEMBERS, "t1": 1.2, "dt": 0.02, "key": 0, "save_every": 3}
LEVEL = 0.3
ALL = {
    "average": cj.TimeAverage(),
    "largest": cj.RunningMax(),
    "correlation": cj.Autocovariance(lags=3),
    "passage": cj.FirstPassage(LEVEL),
    "plain": cj.Mean(),
}
INERTIA = np.linspace(1.0, 3.0, 3 * MEMBERS).reshape(MEMBERS, 3)


@pytest.fixture(scope="module", autouse=True)
def few_slots():
    """Programs of XLA for few saved times, which take less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.Plan, "save_slots", 8)
        yield


@pytest.fixture(scope="module")
def body():
    """A rigid body with its inertia as params, and noise."""
    energy = lambda m, inertia: 0.5 * jnp.sum(m**2 / inertia)
    noises = [cj.salt([0.3, 0.0, 0.0]), cj.salt([0.0, 0.2, 0.1])]
    return cj.System(cj.SO3(), energy, noises, params=jnp.array([1.0, 2.0, 3.0])), jnp.array([0.5, -0.3, 0.8])


@pytest.fixture(scope="module")
def members(body):
    return cj.ensemble(*body, **RUN)


@pytest.fixture(scope="module")
def reduced(body):
    return cj.ensemble(*body, reduce=ALL, **RUN).reduced


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def averages(t, x):
    """Time averages (member, time, …) by the trapezoidal rule."""
    pieces = 0.5 * (x[:, 1:] + x[:, :-1]) * np.diff(t)[:, None]
    return np.concatenate([x[:, :1], np.cumsum(pieces, axis=1) / (t[1:] - t[0])[:, None]], axis=1)


def first_passages(t, x):
    """Times (member, entry) at which x, interpolated linearly, is first at least LEVEL."""
    out = np.full((len(x), x.shape[2]), np.inf)
    for m, c in np.ndindex(out.shape):
        found = np.flatnonzero(x[m, :, c] >= LEVEL)
        if len(found):
            k = found[0]
            before, now = x[m, max(k - 1, 0), c], x[m, k, c]
            out[m, c] = t[0] if k == 0 else t[k - 1] + (LEVEL - before) / (now - before) * (t[k] - t[k - 1])
    return out


def test_all_agree_with_numpy(members, reduced):
    t, x = members.t, members.mu
    mean = averages(t, x)
    close(reduced["average"]["mean"], mean.mean(0))
    close(reduced["average"]["variance"], mean.var(0, ddof=1))
    close(reduced["largest"]["mean"], np.maximum.accumulate(x, axis=1).mean(0))
    close(reduced["plain"]["mean"], x.mean(0))
    for lag in range(4):
        now, then = x[:, lag:].reshape(-1, 3), x[:, : len(t) - lag].reshape(-1, 3)
        covariance = np.mean((now - now.mean(0)) * (then - then.mean(0)), axis=0)
        close(reduced["correlation"]["autocovariance"][-1, lag], covariance)
    assert np.isnan(reduced["correlation"]["autocovariance"][2, 3]).all()  # no pair yet
    times = first_passages(t, x)
    passed = np.isfinite(times)
    close(reduced["passage"]["passed"][-1], passed.mean(0))
    assert 0 < passed.mean(0)[1] < 1 and passed[:, 2].all()
    for c in (1, 2):
        close(reduced["passage"]["mean"][-1, c], times[passed[:, c], c].mean())
        close(reduced["passage"]["variance"][-1, c], times[passed[:, c], c].var(ddof=1))


@pytest.mark.parametrize("size", [1, 7])
def test_no_bit_depends_on_the_chunks(body, reduced, size, monkeypatch):
    tune(monkeypatch, first_chunk=size, largest_chunk=size)
    again = cj.ensemble(*body, reduce=ALL, **RUN).reduced
    jax.tree.map(np.testing.assert_array_equal, again, reduced)


def test_xla_observes_where_native_code_does_not(body, reduced, monkeypatch):
    """By the same states, for any chunks."""
    tune(monkeypatch, accumulator_words=3)
    monkeypatch.setattr(observer, "_kernels", LRUCache())
    ens = cj.ensemble(*body, reduce=ALL, **RUN)
    jax.tree.map(close, ens.reduced, reduced)
    assert ens.stats.backend == "native" and "XLA observes members for the reducer" in ens.stats.reason
    tune(monkeypatch, largest_chunk=5, first_chunk=5)
    jax.tree.map(np.testing.assert_array_equal, cj.ensemble(*body, reduce=ALL, **RUN).reduced, ens.reduced)


def test_batches_on_a_gpu_have_the_same_bits(body, monkeypatch):
    monkeypatch.setattr(gpu_runtime, "detect", lambda: machine)
    tune(monkeypatch, max_batch_size=8, gpu_launch_members=16)
    machine = gpu_runtime.EmulatedGpu(2)
    options = RUN | {"params": INERTIA, "reduce": {"v": Omega(), "m": cj.RunningMax()}, "integrator": cj.HeunMK()}
    options |= {"save": lambda mu, params, t: mu / params + t}
    gpu, cpu = (cj.ensemble(*body, backend=name, **options) for name in ("native-gpu", "native"))
    assert gpu.stats.backend == "native-gpu"
    jax.tree.map(np.testing.assert_array_equal, gpu.reduced, cpu.reduced)


def test_a_store_is_resumed_with_the_states(body, reduced, tmp_path):
    out = tmp_path / "run.zarr"
    cj.ensemble(*body, reduce=ALL, **RUN | {"t1": 0.6}, out=out)
    run = cj.ensemble(*body, reduce=ALL, **RUN, out=out, resume=True)
    jax.tree.map(np.testing.assert_array_equal, run.reduced, reduced)
    assert "average_mean" in cj.open(out)


def test_given_times(body, members):
    """Time averages weigh irregular intervals; an autocovariance needs equal ones."""
    steps = np.array([3, 6, 30, 60])
    mean = cj.ensemble(*body, save_at=0.02 * steps, reduce=cj.TimeAverage(), **RUN | {"save_every": 1}).reduced["mean"]
    close(mean, averages(0.02 * steps, members.mu[:, steps // 3]).mean(0))
    with pytest.raises(ValueError, match="Autocovariance needs equally spaced times"):
        cj.ensemble(*body, save_at=0.02 * steps, reduce={"c": cj.Autocovariance(2)}, **RUN | {"save_every": 1})


def test_an_experiment_file(tmp_path):
    table = {"name": "FirstPassage", "level": 0.2, "reduce": {"name": "Quantiles", "q": 0.5, "low": 0.0, "high": 2.0}}
    run = {"t1": 1.0, "dt": 0.1, "key": 0, "members": 8, "reduce": table}
    run_file({"model": {"name": "rigid_body"}, "run": run}, tmp_path / "run.zarr")
    longer = cj.resume(tmp_path / "run.zarr", t1=2.0)
    assert longer.reduced["quantiles"].shape == (21, 1, 3)
    system, mu0 = cj.models.rigid_body()
    first = cj.FirstPassage(0.2)
    cj.ensemble(system, mu0, members=8, t1=1.0, dt=0.1, key=0, reduce=first, out=tmp_path / "python.zarr")
    assert cj.resume(tmp_path / "python.zarr", t1=2.0).reduced["passed"].shape == (21, 3)


def test_a_run_that_jax_differentiates(body):
    system, mu0 = body
    options = RUN | {"members": 3, "t1": 0.12, "integrator": cj.HeunMK(), "reduce": cj.TimeAverage()}
    value = lambda mu: cj.ensemble(system, mu, **options).reduced["mean"][-1, 0]
    e = np.array([1e-5, 0.0, 0.0])
    now, slope = jax.value_and_grad(value)(mu0)
    close(now, value(mu0))
    assert slope[0] == pytest.approx((value(mu0 + e) - value(mu0 - e)) / 2e-5, rel=1e-7)


# Params and time.


class Omega:
    """A user's reducer: the mean over members of the sum of ω t over saved times, with the params of each member."""

    def start(self, x):
        return jnp.zeros(3)

    def observe(self, state, x, params, t):
        state = state + x / params * t
        return state, state

    def init(self, x):
        return jnp.zeros(()), jnp.zeros(3)

    def update(self, acc, x, weight):
        return acc[0] + weight.sum(), acc[1] + (weight[:, None] * x).sum(0)

    def merge(self, acc, other):
        return acc[0] + other[0], acc[1] + other[1]

    def result(self, acc):
        return acc[1] / acc[0]


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_save_and_reducers_with_params_by_member_and_time(body, backend):
    options = RUN | {"params": INERTIA, "backend": backend, "integrator": cj.HeunMK()}
    all_states = cj.ensemble(*body, **options)
    omega, t = all_states.mu / INERTIA[:, None], all_states.t
    both = cj.ensemble(*body, save=lambda mu, params, t: {"omega": mu / params, "now": t}, **options).saved
    close(both["omega"], omega)
    close(both["now"], np.broadcast_to(t, (MEMBERS, len(t))))
    mean = cj.ensemble(*body, save=lambda mu, params: mu / params, reduce=cj.Mean(), **options).reduced["mean"]
    close(mean, omega.mean(0))
    summed = cj.ensemble(*body, reduce=Omega(), **options).reduced
    close(summed, np.cumsum(omega * t[:, None], axis=1).mean(0))


def test_save_of_one_trajectory_with_params_and_time(body, tmp_path):
    options = {"t1": 0.3, "dt": 0.05, "key": 0}
    energy = lambda mu, params, t: 0.5 * jnp.sum(mu**2 / params) + t
    sol = cj.solve(*body, **options)
    for more in ({}, {"out": tmp_path / "run.zarr"}):
        close(cj.solve(*body, save=energy, **options, **more).saved, sol.energy() + sol.t)
    close(cj.solve(*body, save=lambda mu, t: t * mu, save_at=[0.1, 0.25], **options).saved[:, 0] / [0.1, 0.25],
          sol.mu[[2, 5], 0])  # fmt: skip
    system, mu0 = body
    own = lambda p: cj.solve(system.with_params(p), mu0, save=energy, integrator=cj.HeunMK(), **options).saved[-1]
    e = np.array([1e-5, 0.0, 0.0])
    slope = jax.grad(own)(system.params)[0]
    assert slope == pytest.approx((own(system.params + e) - own(system.params - e)) / 2e-5, rel=1e-7)


def test_params_that_are_no_numbers():
    """Functions among the params reach `save` as they are."""
    system = cj.System(cj.SO3(), lambda m, p: p["f"](m @ m) + p["a"] * m[0], params={"f": jnp.sin, "a": 0.5})
    sol = cj.solve(system, [0.0, 0.6, 0.8], t1=0.2, dt=0.1, save=lambda m, p: p["f"](p["a"] * m[1]))
    mu = cj.solve(system, [0.0, 0.6, 0.8], t1=0.2, dt=0.1).mu
    close(sol.saved, np.sin(0.5 * mu[:, 1]))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"save": lambda t, mu: mu}, "save must have the time t as its last argument"),
        ({"save": lambda mu, a, b: mu}, r"save must have the signature save\(mu\) or save\(mu, params\)"),
        ({"save": lambda params: params}, "params would receive mu"),
        ({"reduce": cj.FirstPassage([0.1, 0.2])}, r"level must be one number, or of shape \(3,\), not \(2,\)"),
    ],
)
def test_what_is_not_supported(body, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        cj.ensemble(*body, **RUN, **options)


def test_reducers_that_are_not_valid():
    system, mu0 = cj.models.rigid_body()
    with pytest.raises(TypeError, match="The system has no params"):
        cj.ensemble(cj.System(cj.SO3(), lambda m: m @ m), mu0, save=lambda mu, inertia: mu, **RUN)
    half = type("Half", (Omega,), {"start": property(lambda self: self.missing)})()
    with pytest.raises(TypeError, match="reduce has observe, but no start"):
        cj.ensemble(system, mu0, reduce=half, **RUN)
    grows = type("Grows", (Omega,), {"observe": lambda self, state, x: (jnp.stack([state, x]), x)})()
    with pytest.raises(ValueError, match="observe must return a state like that of start"):
        cj.ensemble(system, mu0, reduce=grows, **RUN)
    with pytest.raises(TypeError, match="a reducer without a state per member"):
        cj.TimeAverage(cj.RunningMax())
