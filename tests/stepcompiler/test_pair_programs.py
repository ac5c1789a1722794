"""Steps of large arrays: interactions of all pairs as users write them, and random programs of them, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from stepcompiler import Cpu, Signature, dynamic_input
from stepcompiler.arrays.compile import compile_array_step
from stepcompiler.errors import NotCompilable
from stepcompiler.hints import likely

N = 13
PAIRS = jnp.triu_indices(N, 1)
WEIGHTS = jnp.asarray(np.random.default_rng(1).normal(size=(N, N)))
STATE = jax.ShapeDtypeStruct((3 * N,), jnp.float64)

# The scalar products or squared distances of pairs: of all, or of each pair once.
DISTANCES = {
    "product": lambda x: x @ x.T,
    "einsum": lambda x: jnp.einsum("ic,jc->ij", x, x),
    "differences": lambda x: jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1),
    "first axis": lambda x: jnp.sum((x.T[:, :, None] - x.T[:, None, :]) ** 2, axis=0),
    "listed rows": lambda x: jnp.sum((x[PAIRS[0]] - x[PAIRS[1]]) ** 2, axis=1),
    "listed pairs": lambda x: (x @ x.T)[PAIRS],
    "vmap": lambda x: jax.vmap(lambda a: jax.vmap(lambda b: jnp.dot(a, b))(x))(x),
    "rolled": lambda x: jnp.sum(x * jnp.roll(x, 1, axis=0), axis=1),
}
KERNELS = {
    "log": lambda d: jnp.log(2.0 + d * d),
    "root": lambda d: 1.0 / jnp.sqrt(0.1 + d * d),
    "exp": lambda d: jnp.exp(-d * d) * jnp.sin(d),
    "cubic": lambda d: d**3 - d,
    "clipped": lambda d: jnp.where(d > 0.3, d, jnp.abs(d)),
}
MASKS = {
    "none": lambda e: e,
    "triu": lambda e: jnp.triu(e, 1) if e.ndim == 2 else e,
    "where": lambda e: jnp.where(jnp.eye(N, dtype=bool), 0.0, e) if e.ndim == 2 else e,
    "eye": lambda e: e * (1.0 - jnp.eye(N)) if e.ndim == 2 else e,
    "weights": lambda e: WEIGHTS * e if e.ndim == 2 else e,
    "diagonal": lambda e: e.at[jnp.diag_indices(N)].set(0.0) if e.ndim == 2 else e.at[::2].multiply(2.0),
}
SUMS = {
    "sum": jnp.sum,
    "rows": lambda e: jnp.sum(jnp.tanh(jnp.sum(e, axis=0))),
    "columns": lambda e: jnp.sum(jnp.sum(e, axis=-1) ** 2),
    "mean": lambda e: jnp.mean(e) + jnp.max(e),
}


def random_energy(seed):
    """A Hamiltonian of N points from the tables."""
    rng = np.random.default_rng(seed)
    distance, kernel, mask, total = (t[list(t)[rng.integers(len(t))]] for t in (DISTANCES, KERNELS, MASKS, SUMS))
    normalised = rng.random() < 0.5

    def energy(state):
        x = state.reshape(-1, 3)
        x = x / jnp.linalg.norm(x, axis=1, keepdims=True) if normalised else x
        return total(mask(kernel(distance(x))))

    return energy


def kernel_of(fn, width=1, state=STATE, fallback=None):
    """A compiled loop over steps that save fn(x) of a constant state."""
    step = lambda shared, member, x, n, path: (x, fn(x), jnp.array(True))
    return compile_array_step(step, Signature([dynamic_input(0.0)], state=state), Cpu(width), fallback=fallback)


def called(kernel, states):
    """What a kernel saves of some states."""
    buffers = kernel.allocate(len(states), 1)
    kernel.set_inputs(buffers, shared=[0.0], state=states)
    kernel.run(buffers, 1)
    return [x[: len(states), 0] for x in jax.tree.leaves(kernel.saved(buffers))]


def states(count=1, size=3 * N, seed=0):
    return np.random.default_rng(seed).normal(size=(count, size))


def assert_like_jax(fn, size=3 * N, tolerance=1e-12):
    """Native code has the results of JAX, to round-off."""
    x = states(1, size)
    kernel = kernel_of(fn, state=jax.ShapeDtypeStruct((size,), jnp.float64))
    for out, expected in zip(called(kernel, x), jax.tree.leaves(jax.vmap(fn)(x)), strict=True):
        scale = 1.0 + np.max(np.abs(expected), initial=0.0)
        np.testing.assert_allclose(np.asarray(out, float), np.asarray(expected, float), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("seed", range(8))
def test_random_pair_programs_and_their_gradients_agree_with_jax(seed):
    assert_like_jax(jax.value_and_grad(random_energy(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 120))
def test_many_random_pair_programs_agree_with_jax(seed):
    assert_like_jax(jax.value_and_grad(random_energy(seed)))


@pytest.mark.parametrize("name", DISTANCES)
def test_each_way_to_write_distances_agrees_with_jax(name):
    assert_like_jax(jax.grad(lambda x: jnp.sum(jnp.log(3.0 + DISTANCES[name](x.reshape(-1, 3)) ** 2))))


MOVES = {
    "stack": lambda x: jnp.stack([x[::3], jnp.sin(x[1::3]), x[2::3]], axis=1),
    "concatenate": lambda x: jnp.concatenate([jnp.sin(x), x[:5], jnp.ones(3)]),
    "pad": lambda x: jnp.pad(jnp.cos(x), (2, 3), constant_values=0.5),
    "reverse": lambda x: jnp.sin(x)[::-1],
    "roll": lambda x: jnp.roll(jnp.outer(x, x), 2, axis=1)[:9],
    "tile": lambda x: jnp.tile(x, 2) * 2.0,
    "clipped gather": lambda x: x.at[jnp.array([0, 100, -1])].get(mode="clip"),
    "filled gather": lambda x: x.at[jnp.array([0, 100, 3])].get(mode="fill", fill_value=0.25),
    "set": lambda x: jnp.outer(x, x).at[jnp.array([1, 1, 30])].set(jnp.stack([x, 2 * x, 3 * x])),
    "add at": lambda x: x.at[jnp.array([1, 1, 1, 30, 200])].add(jnp.arange(5.0), mode="drop"),
    "small": lambda x: jnp.linalg.norm(x[:3]) + jnp.max(x) * jnp.min(x) + jnp.prod(jnp.tanh(x)),
    "truth": lambda x: (jnp.any(x > 2.0), jnp.all(x < 3.0), jnp.sum(x > 0.0)),
    "integers": lambda x: (jnp.floor(3 * x).astype(int) * 7 % 5, jnp.arange(len(x)) ^ 3),
    "cube": lambda x: jnp.sum(x[:9, None, None] * x[None, :9, None] - x[None, None, :9], axis=(0, 2)),
    "stack of matrices": lambda x: jnp.einsum("iab,ibc->ac", x.reshape(3, 13, 1) * jnp.ones(8), jnp.ones((3, 8, 9))),
    "four axes": lambda x: jnp.einsum("abcd->ca", x[:36].reshape(2, 9, 2, 1) * jnp.ones((2, 9, 2, 4))),
    "scan": lambda x: lax.scan(lambda c, a: (jnp.sin(c) + a, c[:3]), x, jnp.arange(4.0))[1],
    "loop": lambda x: lax.while_loop(lambda s: s[1] < 5, lambda s: (jnp.cos(s[0]) @ jnp.outer(x, x), s[1] + 1), (x, 0)),
    "branch": lambda x: lax.cond(x[0] > 0, lambda: jnp.sum(jnp.outer(x, x), 0), lambda: -x),
    "switch": lambda x: lax.switch((x[0] > 0) + 1, [lambda: x, lambda: 2 * x, lambda: 3 * x]),
    "nested loops": lambda x: lax.fori_loop(0, 3, lambda i, y: lax.fori_loop(0, i, lambda j, z: z * 0.5 + x, y), x),
    "swapped": lambda x: lax.fori_loop(0, 3, lambda i, s: (s[1], s[0][::-1]), (x, jnp.sin(x))),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_operations_on_arrays_agree_with_jax(name):
    assert_like_jax(MOVES[name])


def test_results_are_bitwise_identical_for_any_number_of_members():
    step = jax.grad(random_energy(2))
    x = states(11)
    alone = called(kernel_of(step), x[3:4])[0]
    for width in (1, 4, 8):
        assert called(kernel_of(step, width), x)[0][3].tobytes() == alone[0].tobytes()


def test_runs_in_pieces_are_bitwise_identical_and_read_all_inputs():
    def step(shared, member, x, n, path):
        (dt,), (rate,) = shared, member
        new = x - dt * rate * jax.grad(random_energy(1))(x) + path * (n + 1)
        return new, (new, n), jnp.all(jnp.isfinite(new))

    number = jax.ShapeDtypeStruct((), jnp.float64)
    kernel = compile_array_step(step, Signature([dynamic_input(0.0)], [number], STATE, STATE), Cpu(2))
    x, rates, path = states(3), np.array([0.5, 1.0, 2.0]), 1e-2 * np.random.default_rng(4).normal(size=(3, 6, 3 * N))

    def run(*stops):
        buffers = kernel.allocate(3, 6, 6)
        kernel.set_inputs(buffers, shared=[1e-3], member=[rates], state=x, path=path)
        for stop in stops:
            kernel.run(buffers, stop)
        return kernel.saved(buffers)

    whole, pieces = run(6), run(1, 4, 6)
    assert whole[0].tobytes() == pieces[0].tobytes()
    np.testing.assert_array_equal(whole[1][0], np.arange(6))
    expected = x
    for n in range(6):
        given = zip(rates, expected, path[:, n], strict=True)
        expected = np.stack([np.asarray(step([1e-3], [r], y, n, p)[0]) for r, y, p in given])
        np.testing.assert_allclose(whole[0][:3, n], expected, rtol=0, atol=1e-12)


def test_a_step_that_is_not_valid_stops_its_group_or_is_taken_by_the_fallback():
    def step(shared, member, x, n, path):
        small = likely(jnp.sum(jnp.outer(x, x)) < 4.0)
        return x + 0.1, jnp.where(small, x, -x), jnp.array(True)

    signature = Signature([dynamic_input(0.0)], state=STATE)
    x = np.zeros((2, 3 * N))
    for fallback, last in ((None, 1), (step, 3)):
        kernel = compile_array_step(step, signature, Cpu(2), fallback=fallback)
        buffers = kernel.allocate(2, 3)
        kernel.set_inputs(buffers, shared=[0.0], state=x)
        kernel.run(buffers, 3)
        assert buffers.n[0] == last
    saved = kernel.saved(buffers)[0]
    np.testing.assert_allclose(saved[:, 0], [0.0, -0.1, -0.2], atol=1e-15)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: jnp.sort(x), "sort"),
        (lambda x: x[jnp.argmax(x)], "argmax"),
        (lambda x: jnp.outer(x, x) @ jnp.outer(x, x), "multiplies matrices"),
        (lambda x: jnp.cumsum(x), "cumsum"),
        (lambda x: x.astype(jnp.float32), "float32"),
        (lambda x: x[jnp.floor(x).astype(int)], "computed indices"),
    ],
)
def test_programs_without_native_code_state_the_reason(fn, reason):
    with pytest.raises(NotCompilable, match=reason):
        kernel_of(fn)


def test_the_length_of_the_code_does_not_grow_with_the_arrays(monkeypatch):
    """States whose vectors have their components side by side are copied by loops, with padded rows too."""
    lines = []
    monkeypatch.setattr(Cpu, "link", lambda self, text, sizes: lines.append(text.count("\n")))
    for rows in ((40, 10), (80, 20)):
        rolled = lambda x, rows=rows: jnp.roll(x.reshape(*rows, 3), 1, axis=0).ravel()
        step = lambda shared, member, x, n, path, rolled=rolled: (x + 0.1 * rolled(x), x, jnp.array(True))
        state = jax.ShapeDtypeStruct((3 * rows[0] * rows[1],), jnp.float64)
        compile_array_step(step, Signature([dynamic_input(0.0)], state=state), Cpu(1))
    assert lines[0] == lines[1] < 1000
