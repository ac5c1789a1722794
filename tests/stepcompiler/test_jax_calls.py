"""Kernels as operations of JAX, and kernels that run backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepcompiler import Cpu, Signature, compile_step, dynamic_input, jax_calls
from stepcompiler.arrays.compile import compile_array_step

PAIR = jax.ShapeDtypeStruct((2,), jnp.float64)
STEPS = 12
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("compiled", [compile_step, compile_array_step], ids=["numbers", "arrays"])
def test_a_backward_kernel_adds_words_to_its_state(compiled):
    """It reads the last row first; some numbers of the state grow at every second step."""
    step = lambda shared, member, state, n, path: (shared[0] * state + path, None, jnp.ones((), bool))
    size, places = 24, (1, *range(5, 20))
    vector = jax.ShapeDtypeStruct((size,), jnp.float64)
    for width in (1, 4):
        signature = Signature([dynamic_input(0.5)], [], vector, vector, backward=True, added=places)
        kernel = compiled(step, signature, Cpu(width))
        path, added = RNG.standard_normal((3, STEPS, size)), RNG.standard_normal((3, STEPS // 2, len(places)))
        buffers = kernel.allocate(3, STEPS // 2, STEPS)
        kernel.set_inputs(buffers, shared=[0.5], state=np.ones((3, size)), path=path)
        buffers.added = kernel.layout.arranged(added)
        for stop in (5, STEPS):
            kernel.run(buffers, stop, 2)
        x = np.ones((3, size))
        for n in range(STEPS):
            x = 0.5 * x + path[:, STEPS - 1 - n]
            x[:, places] += added[:, n // 2] if n % 2 else 0.0
        np.testing.assert_allclose(kernel.state(buffers)[:3], x, rtol=0, atol=1e-13)
        buffers.n[:], buffers.added = 0, None
        with pytest.raises(ValueError, match=f"adds {len(places)} words needs them"):
            kernel.run(buffers, STEPS, 2)


@pytest.fixture(scope="module")
def kernel():
    def step(shared, member, state, n, path):
        return jnp.sin(shared[0] * state + path) + member[0], state, jnp.ones((), bool)

    made = compile_step(step, Signature([dynamic_input(0.5)], [PAIR], PAIR, PAIR), Cpu(4))
    jax_calls.register(made, lambda: None)
    return made


def test_threads_checkpoints_and_python_give_the_same_bits(kernel, monkeypatch):
    """Five groups: alone, among threads, and called by Python; states are saved every fifth step."""
    words = lambda *shape: jnp.asarray(RNG.standard_normal(shape)).view(jnp.int64)
    state, member, path = words(5, 2, 4), words(5, 2, 4), words(5, STEPS, 2, 4)

    def results():
        again = lambda c: jax_calls.call(
            kernel, [c], state, member, path, stop=STEPS, slots=4, every=3, keep=5, times=3
        )  # fmt: skip
        return jax.tree.map(np.asarray, jax.jit(again)(0.5))

    assert jax_calls.way_of_calling().reason == ""
    alone = results()
    monkeypatch.setattr(jax_calls, "_WORTH_THREADS", 1)
    monkeypatch.setattr(jax_calls, "threads_for", lambda groups: 3)
    divided = results()
    monkeypatch.setattr(jax_calls, "way_of_calling", lambda: jax_calls.Way(None, "tested"))
    in_python = results()
    for a, b, c in zip(alone, divided, in_python, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert alone.n.tolist() == [STEPS] * 5 and alone.kept.shape == (3, 5, 2, 4)
    np.testing.assert_array_equal(alone.kept[0], state)
