"""Random programs as users write them, by native code, by XLA and by NumPy: the same numbers, or a reason."""

from collections import Counter

import hamiltonians
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hamiltonians import Kinds
from native_steps import called, made
from numpy_jaxpr import Noise, Unsupported, evaluate

import coadjoint as cj
from stepcompiler.errors import NotCompilable
from stepcompiler.jaxprs import updates

STATES = np.random.default_rng(11).uniform(-1.3, 1.3, (8, 3))
DISCONTINUOUS = 1e-3  # changes by more than this under small errors: not compared
KINDS = Kinds()


class Truth:
    """What NumPy makes of a program at some states, and how far another evaluation may be from it."""

    def __init__(self, program, rows, noisy=2):
        some = [
            [np.concatenate([np.ravel(y) for y in evaluate(program, row, noise)]) for row in rows]
            for noise in (None, *map(Noise, range(noisy)))
        ]
        self.value, *others = map(np.array, some)
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(x - self.value) for x in others], axis=0)
        self.comparable = np.isfinite(self.value) & (spread < DISCONTINUOUS) & (np.abs(self.value) < 1e6)
        single = "float32" in str(program) or "f32" in str(program) or "c64" in str(program)
        self.bound = 10 * spread + 1e-10 * (1 + np.abs(self.value)) + (1e-5 if single else 0)

    def wrong(self, out):
        with np.errstate(all="ignore"):
            bad = self.comparable & ~(np.abs(out - self.value) <= self.bound)
        return [(tuple(map(int, i)), float(out[tuple(i)]), float(self.value[tuple(i)])) for i in np.argwhere(bad)]


def compare(seed, counts, kinds=KINDS, xla=True, more=None):
    """h and its gradient, at eight states: by native code one by one and side by side, by XLA, by NumPy."""
    text = hamiltonians.source(seed, kinds)
    h, p = hamiltonians.function(text), hamiltonians.params(seed)
    leaves, tree = jax.tree.flatten(p)
    both = lambda mu, *leaves: jax.value_and_grad(lambda m: h(m, jax.tree.unflatten(tree, leaves)))(mu)
    try:
        program = jax.make_jaxpr(both)(STATES[0], *leaves)
    except (TypeError, ValueError, NotImplementedError) as error:
        counts[f"JAX: {type(error).__name__}"] += 1
        return
    fn = lambda *args: jnp.concatenate(
        [jnp.ravel(x) for x in jax.core.eval_jaxpr(program.jaxpr, program.consts, *args)]
    )
    try:
        truth = Truth(program, [[row, *map(np.asarray, leaves)] for row in STATES])
    except Unsupported as error:
        counts[f"NumPy: {error}"] += 1
        return
    counts["numbers compared"] += int(truth.comparable.sum())
    counts["numbers not compared"] += int((~truth.comparable).sum())
    report = hamiltonians.pasted(seed, text)
    if xla:
        immune = lambda m, *p: jnp.concatenate(
            [jnp.ravel(x) for x in updates.evaluate(program.jaxpr, program.consts, m, *p)]
        )
        out = np.asarray(jax.jit(lambda r, *p: jax.lax.map(lambda m: immune(m, *p), r))(STATES, *leaves))
        assert not (bad := truth.wrong(out)), f"XLA against NumPy: {bad[:3]}\n{report}"
    try:
        natives = [made(fn, STATES, leaves, width) for width in ((1, 8) if seed % 4 == 0 else (8,))]
    except NotCompilable as refused:
        counts[f"native: {refused}"] += 1
        assert "Making native code failed" not in str(refused), f"{refused}\n{report}"
        return
    for native in natives:
        out, _ = called(native, STATES, leaves)
        assert not (bad := truth.wrong(out)), f"native against NumPy: {bad[:3]}\n{report}"
    counts["compared"] += 1


# Whole runs.

STEPS, DT, WEIGHTS = 4, 0.05, np.array([1.0, -0.6, 0.3])
METHODS = [cj.HeunMK(), cj.RKMK("rk4"), cj.TMK(), cj.Heun()]
SQUARES = lambda mu, p: 0.5 * jnp.sum(mu**2 * jnp.array([1.0, 2.0, 3.0]))


def system_of(seed, kinds):
    """A system and a method: every third program is a forcing, which is not differentiated by an explicit method."""
    vector = seed % 3 == 0
    kinds = kinds._replace(while_loops=vector)
    text = hamiltonians.source(seed, kinds, vector)
    fn, p = hamiltonians.function(text), hamiltonians.params(seed)
    method = METHODS[seed % 4 if not vector else seed % 2]
    what = {"hamiltonian": SQUARES, "forcing": fn} if vector else {"hamiltonian": fn}
    return text, cj.System(cj.SO3(), **what, params=p), method


def run_by_numpy(system, method, mu0, params, noise=None):
    """The last state of a run, by NumPy."""
    fast = method.fast()

    def step(mu, params, carry):
        system_ = system.with_params(params)
        mu, carry, info = fast.step(
            system_,
            mu,
            jnp.zeros(()),
            jnp.asarray(DT),
            cj.drivers.base.Increment(jnp.zeros(0), jnp.asarray(jnp.inf)),
            carry,
        )
        return mu, carry, info.converged

    params = jax.tree.map(np.asarray, params)
    mu, carry = mu0, jax.tree.map(np.asarray, method.init(system, mu0))
    program = jax.make_jaxpr(step)(mu, params, carry)
    good = True
    for _ in range(STEPS):
        out = evaluate(program, jax.tree.leaves((mu, params, carry)), noise)
        mu, carry, good = out[0], jax.tree.unflatten(jax.tree.structure(carry), out[1:-1]), good and bool(out[-1])
    return np.where(good, mu, np.nan), program


def compare_run(seed, counts, kinds=KINDS):
    try:
        text, system, method = system_of(seed, kinds)
        shape = ("solve", "ensemble", "by member")[seed // 4 % 3]
        members = None if shape == "solve" else 8
        own = hamiltonians.params(seed, 8) if shape == "by member" else None
        one = lambda k: system.params if own is None else jax.tree.map(lambda x: x[k], own)
        truth = [
            [run_by_numpy(system, method, STATES[k], one(k), noise)[0] for k in range(members or 1)]
            for noise in (None, Noise(0, 1e-13), Noise(1, 1e-13))
        ]
    except Unsupported as error:
        counts[f"NumPy: {error}"] += 1
        return
    except (TypeError, ValueError, NotImplementedError) as error:
        counts[f"JAX: {type(error).__name__}: {str(error)[:60]}"] += 1
        return
    value, *others = map(np.array, truth)
    spread = np.max([np.abs(x - value) for x in others], axis=0)
    single = "32" in text or "complex64" in text
    good = np.isfinite(value) & (spread < DISCONTINUOUS) & (np.abs(value) < 1e3)
    good &= np.all(good, axis=-1, keepdims=True)
    bound = 20 * spread + 1e-9 + (1e-5 if single else 0)
    counts["compared" if good.any() else "not compared"] += 1
    if not good.any():
        return
    report = f"{shape}, {method}\n{hamiltonians.pasted(seed, text)}"
    for backend in ("auto", "xla"):
        options = {"t1": STEPS * DT, "dt": DT, "integrator": method, "backend": backend, "throw": False}
        if members is None:
            sol = cj.solve(system, STATES[0], **options)
            out = np.asarray(sol.mu)[None, -1]
        else:
            sol = cj.ensemble(system, STATES, members=members, params=own, **options)
            out = np.asarray(sol.mu)[:, -1]
        if backend == "auto":
            counts[f"{sol.stats.backend}: {sol.stats.reason}"] += 1
            assert "Making native code failed" not in sol.stats.reason, f"{sol.stats.reason}\n{report}"
        bad = good & ~(np.abs(out - value) <= bound)
        assert not bad.any(), f"{sol.stats.backend} ({backend}) against NumPy: {out[bad][:3]} {value[bad][:3]} {report}"


# Derivatives of whole runs.


def compare_gradient(seed, counts, kinds=KINDS):
    """jax.grad through `solve`, with respect to the state and the params, against differences of native runs."""
    try:
        text, system, method = system_of(seed, kinds._replace(right_rules=True))
        numbers = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.floating), system.params)
        options = {"t1": STEPS * DT, "dt": DT, "integrator": method, "throw": False}

        def loss(mu, params):
            merged = jax.tree.map(lambda own, given, moved: moved if own else given, numbers, system.params, params)
            return cj.solve(system.with_params(merged), mu, **options).mu[-1] @ WEIGHTS

        moving = jax.tree.map(lambda x: jnp.asarray(x, float), system.params)
        gradient = jax.grad(loss, argnums=(0, 1))(jnp.asarray(STATES[0]), moving)
    except (TypeError, ValueError, NotImplementedError) as error:
        counts[f"JAX: {type(error).__name__}: {str(error)[:60]}"] += 1
        return
    rng = np.random.default_rng(seed)
    along = jax.tree.map(lambda x: rng.standard_normal(x.shape), (STATES[0], moving))
    predicted = float(sum(np.sum(g * v) for g, v in zip(*map(jax.tree.leaves, (gradient, along)), strict=True)))
    moved = lambda s: jax.tree.map(lambda x, v: x + s * v, (STATES[0], moving), along)
    steps, middle = (1e-4, 3e-5, 1e-5), float(loss(*moved(0.0)))
    ends = [(float(loss(*moved(s))), float(loss(*moved(-s)))) for s in steps]
    differences = [(a - b) / (2 * s) for s, (a, b) in zip(steps, ends, strict=True)]
    jumps = [abs(a - 2 * middle + b) / s for s, (a, b) in zip(steps, ends, strict=True)]  # of the slope, at a kink
    close = 1e-5 * (1 + abs(differences[2])) + 3 * abs(differences[1] - differences[2])
    rough = not np.all(np.isfinite(differences)) or np.ptp(differences) > 1e-3 * (1 + abs(differences[2]))
    if rough or jumps[2] > max(0.1 * close, 0.6 * jumps[1]):
        counts["gradients not compared"] += 1  # near an edge, or single precision
        return
    counts["gradients"] += 1
    if "stop_gradient" in text or "lax.bitcast_convert_type(lax." in text:
        return
    assert abs(predicted - differences[2]) <= close, f"{predicted} {differences}\n{hamiltonians.pasted(seed, text)}"


# Tests.


def test_programs():
    """A slice of the thousands below: values and gradients."""
    counts = Counter()
    for seed in range(5):
        compare(seed, counts, xla=seed == 0)
    assert counts["compared"] >= 3, counts


def test_runs():
    """Runs of few steps: single, and eight members with parameters of their own."""
    counts = Counter()
    for seed in (1, 8):
        compare_run(seed, counts)
    assert counts["compared"] == 2, counts


def test_gradients_of_runs():
    counts = Counter()
    compare_gradient(20, counts)
    assert counts["gradients"] == 1, counts


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 5000, 100))
def test_thousands_of_programs(start):
    """In shards: `-k "programs and 1200"`."""
    counts = Counter()
    for seed in range(start, start + 100):
        compare(seed, counts, xla=seed % 5 == 0)
        if seed % 10 == 0:
            compare_run(seed, counts)
            compare_gradient(seed, counts)
        if seed % 25 == 24:
            jax.clear_caches()
    print(start, dict(counts))
    assert counts["compared"] >= 80, counts
