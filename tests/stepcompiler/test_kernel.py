"""The entry point of the compiler: predators and prey, with rates by member and a harvest that changes in time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepcompiler import Cpu, Gpu, NotCompilable, PathSampler, Signature, compile_step, constant_pattern, dynamic_input

MEMBERS, STEPS = 11, 12  # one group of eight and a part of one
NUMBER = jax.ShapeDtypeStruct((), jnp.float64)
MATRIX = np.array([[1.0, -1.0], [1.0, -1.0]])
RATES = np.linspace(0.5, 1.5, MEMBERS)
STATES = {"x": np.linspace([0.5, 1.0], [2.0, 0.3], MEMBERS), "catches": np.arange(MEMBERS)}
HARVEST = np.sin(np.arange(MEMBERS * STEPS * 2.0)).reshape(MEMBERS, STEPS, 2)
STATE = {"x": jax.ShapeDtypeStruct((2,), jnp.float64), "catches": jax.ShapeDtypeStruct((), jnp.int64)}
PATH = jax.ShapeDtypeStruct((2,), jnp.float64)
SIGNATURE = Signature([constant_pattern(MATRIX), dynamic_input(0.0)], [NUMBER], STATE, PATH)


def step(shared, member, state, n, harvest):
    """One Euler step; the population and its logarithm are saved."""
    (matrix, dt), (rate,), x = shared, member, state["x"]
    new = x + dt * (rate * x * (matrix @ x[::-1]) - 0.1 * harvest[0] * jnp.cos(x))
    caught = state["catches"] + (harvest[0] > 0)
    return {"x": new, "catches": caught}, (new, jnp.log(new[0]) * (1 + 2j)), jnp.all(new > 0)


def run(target, stop=STEPS):
    kernel = compile_step(step, SIGNATURE, target)
    buffers = kernel.allocate(MEMBERS, slots=STEPS // 3)
    kernel.set_inputs(buffers, shared=[MATRIX, 0.01], member=[RATES], state=STATES, path=HARVEST)
    kernel.run(buffers, stop, save_every=3)
    return kernel, buffers


def test_a_run_is_that_of_jax():
    def scan(state, rate, harvest):
        one = lambda state, path: step([MATRIX, 0.01], [rate], state, 0, path)[:2]
        return jax.lax.scan(one, state, harvest)

    last, (x, log) = jax.vmap(scan)(STATES, RATES, HARVEST)
    kernel, buffers = run(Cpu(8))
    found, saved = kernel.state(buffers), kernel.saved(buffers)
    assert kernel.path_columns == (0,)  # nothing else of the path is read
    assert (buffers.n == STEPS).all()
    np.testing.assert_allclose(found["x"][:MEMBERS], last["x"], rtol=1e-14)
    np.testing.assert_array_equal(found["catches"][:MEMBERS], last["catches"])
    np.testing.assert_allclose(saved[0][:MEMBERS], x[:, 2::3], rtol=1e-14)
    np.testing.assert_allclose(saved[1][:MEMBERS], log[:, 2::3], rtol=1e-13, atol=1e-15)


def test_every_target_gives_the_same_bits():
    (first, one), *others = (run(target) for target in (Cpu(1), Cpu(8), Gpu(emulated=True)))
    for kernel, buffers in others:
        for a, b in zip(first.saved(one), kernel.saved(buffers), strict=True):
            assert a.tobytes() == b[:MEMBERS].tobytes()


def test_a_run_goes_on_where_it_stopped():
    kernel, buffers = run(Cpu(8))
    _, parts = run(Cpu(8), stop=5)
    kernel.run(parts, STEPS, save_every=3)
    np.testing.assert_array_equal(parts.saved, buffers.saved)


def test_a_step_that_is_not_valid_is_left_to_the_fallback():
    def halve(shared, member, state, n, path):
        return 0.5 * state, state, state > 0.2

    def half(shared, member, state, n, path):
        return 0.5 * state, state, state > 0.1

    for fallback, stands in ((None, [2, 4]), (half, [3, 4])):
        kernel = compile_step(halve, Signature(state=NUMBER), Cpu(1), fallback=fallback)
        buffers = kernel.allocate(2, slots=4)
        kernel.set_inputs(buffers, shared=[], state=np.array([0.5, 2.0]))
        kernel.run(buffers, 4)
        assert buffers.n.tolist() == stands


def test_a_path_that_the_kernel_computes():
    def pair(shared, member, k, columns):
        both = jnp.stack([2 * k, 2 * k + 1]) * shared[0] + member
        return both[:, None]

    total = lambda shared, member, state, n, path: (state + path, path, jnp.ones((), bool))
    signature = Signature(member=[jax.ShapeDtypeStruct((), jnp.int64)], state=NUMBER, path=NUMBER)
    kernel = compile_step(total, signature, Cpu(8), path_sampler=PathSampler(pair, [dynamic_input(0.0)]))
    buffers = kernel.allocate(8, slots=5)
    kernel.set_inputs(buffers, shared=[], member=[np.arange(8)], sampler=[10.0])
    kernel.run(buffers, 5)
    np.testing.assert_array_equal(kernel.saved(buffers), 10.0 * np.arange(5) + np.arange(8)[:, None])


def test_wrong_buffers_are_an_error():
    kernel, buffers = run(Cpu(8))
    with pytest.raises(ValueError, match=r"The path has the steps 0 … 11, but the run takes 12 … 12\."):
        kernel.run(buffers, STEPS + 1, save_every=3)
    buffers.first_path_step = 1
    with pytest.raises(ValueError, match=r"The buffers have 4 rows, but 13 are saved\."):
        kernel.run(buffers, STEPS + 1, save_every=1)
    with pytest.raises(ValueError, match=r"state takes \(2, 2, 8\) words, but this kernel and its buffers have"):
        kernel.set_inputs(buffers, state=np.zeros((MEMBERS, 2)))
    buffers.state = buffers.state.swapaxes(0, 2)
    with pytest.raises(ValueError, match="do not fit a kernel of"):
        kernel.run(buffers, STEPS)
    with pytest.raises(ValueError, match="Only Gpu"):
        compile_step(lambda *a: (a[2], a[2], a[2] > 0), Signature(state=NUMBER), Gpu()).run(buffers, 1)


def test_what_is_not_supported_is_named():
    bad = lambda shared, member, state, n, path: (state, jnp.linalg.eigvalsh(jnp.outer(state, state)), True)
    with pytest.raises(NotCompilable, match="eigenvalues of a Hermitian matrix"):
        compile_step(bad, Signature(state=STATE["x"]), Cpu(1))
