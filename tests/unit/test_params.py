"""Params of every kind: pytrees with None, functions and words in them, Equinox modules, and parts of these."""

import pickle
import threading
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.clusters.serialization import serialize
from coadjoint.numerics.contents import content_key
from coadjoint.store.atomic_io import StoreError

MU = np.array([0.3, -0.7, 1.1])
RUN = dict(t1=0.5, dt=0.1, integrator=cj.HeunMK())
W = np.array([[1.0, 0.2, 0.0], [0.3, 2.0, 0.1]])


class Net(eqx.Module):
    """A Hamiltonian with a number, an array, a function, a word, and a leaf that is left out."""

    weight: jax.Array
    scale: float
    activation: Callable
    kind: str = "sum"
    bias: jax.Array | None = None

    def __call__(self, m):
        y = self.activation(self.weight @ m + (0.0 if self.bias is None else self.bias))
        return self.scale * (jnp.sum(y) if self.kind == "sum" else jnp.max(y))


def net(activation=jnp.tanh, scale=1.5, kind="sum", weight=W):
    return Net(jnp.asarray(weight), scale, activation, kind)


def energy(m, p):
    return p(m) + 0.5 * m @ m


def system(params, h=energy, **options):
    return cj.System(cj.SO3(), h, params=params, **options)


def last(params, h=energy, **options):
    return cj.solve(system(params, h), MU, **RUN, **options).mu[-1]


def plain(activation=jnp.tanh, scale=1.5, weight=W):
    """The same motion without params."""
    h = lambda m: scale * jnp.sum(activation(weight @ m)) + 0.5 * m @ m
    return cj.solve(cj.System(cj.SO3(), h), MU, **RUN).mu[-1]


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_modules_are_params(backend):
    """The module itself, its arrays alone, and dictionaries that hold one."""
    sol = cj.solve(system(net()), MU, **RUN, backend=backend)
    assert sol.stats.backend == backend
    np.testing.assert_allclose(sol.mu[-1], plain(), rtol=1e-14)
    arrays, static = eqx.partition(net(), eqx.is_array)
    parted = last(arrays, lambda m, p: energy(m, eqx.combine(p, static)), backend=backend)
    np.testing.assert_allclose(parted, plain(), rtol=1e-14)
    around = {"net": net(), "none": None, "word": "x", "function": jnp.sin}
    np.testing.assert_allclose(last(around, lambda m, p: energy(m, p["net"]), backend=backend), plain(), rtol=1e-14)


def test_other_leaves_are_part_of_the_program():
    np.testing.assert_allclose(last(net(jnp.sin)), plain(jnp.sin), rtol=1e-14)
    assert not np.allclose(last(net(jnp.sin)), last(net()))
    assert not np.allclose(last(net(kind="max")), last(net()))
    assert last(net(lambda x: jnp.tanh(x))).tolist() == last(net(lambda x: jnp.tanh(x))).tolist()


def test_params_without_numbers():
    for params in ({"f": jnp.tanh, "a": None}, (None, jnp.tanh, "word"), [jnp.tanh]):
        h = lambda m, p: 1.5 * jnp.sum(jnp.tanh(W @ m)) + 0.5 * m @ m
        np.testing.assert_allclose(last(params, h), plain(), rtol=1e-14)
        both = cj.ensemble(system(params, h), MU, members=2, params=params, **RUN)
        np.testing.assert_allclose(both.mu[:, -1], [plain()] * 2, rtol=1e-14)


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_members_with_modules_of_their_own(backend):
    s = system(net())
    given = eqx.tree_at(lambda p: p.weight, net(), jnp.stack([W, 2 * W, -W]))
    for params in (given, eqx.filter(given, eqx.is_inexact_array_like)):
        ens = cj.ensemble(s, MU, members=3, params=params, backend=backend, **RUN)
        np.testing.assert_allclose(ens.mu[:, -1], [plain(weight=k * W) for k in (1, 2, -1)], rtol=1e-13)
        assert ens.energy().shape == (3, 6)


def test_gradients():
    """By Equinox and by JAX, of the module and of its numbers, against differences."""
    s, model = system(net()), net()

    def made(model):
        return last(model)[0]

    def replaced(model):
        return cj.solve(s.with_params(model), MU, **RUN).mu[-1][0]

    step = 1e-6 * np.eye(6).reshape(6, 2, 3)
    differences = [(plain(weight=W + d)[0] - plain(weight=W - d)[0]) / 2e-6 for d in step[:2]]
    by_equinox = eqx.filter_grad(made)(model)
    np.testing.assert_allclose(by_equinox.weight.ravel()[:2], differences, rtol=1e-7)
    assert by_equinox.activation is None
    for gradient in (eqx.filter_grad(replaced)(model), jax.grad(replaced)(s.params)):
        np.testing.assert_allclose(gradient.weight, by_equinox.weight, rtol=1e-12)
    compiled = eqx.filter_jit(made)(model)
    np.testing.assert_allclose(compiled, plain()[0], rtol=1e-13)
    mapped = eqx.filter_vmap(replaced)(eqx.tree_at(lambda p: p.weight, model, jnp.stack([W, 2 * W])))
    np.testing.assert_allclose(mapped, [plain()[0], plain(weight=2 * W)[0]], rtol=1e-13)


def test_all_functions_of_a_system_take_the_module():
    class Field(cj.Noise):
        size: int = 1
        additive: bool = False

        def apply(self, mu, dS, params=None):
            return params.activation(mu) * dS[0]

    s = system(
        net(),
        noise=[Field(), cj.salt(lambda p: p.activation(p.weight[0])), lambda m, p: p.activation(m[0])],
        forcing=lambda m, p: 0.1 * p.activation(m),
        gradient=lambda m, p: jax.grad(energy)(m, p),
        dissipation=lambda m, dt, p: m * jnp.exp(-0.1 * dt * p.activation(p.scale)),
    )
    bare = cj.System(
        cj.SO3(),
        lambda m: energy(m, net()),
        [lambda m: jnp.sum(jnp.log(jnp.cosh(m))), cj.salt(np.tanh(W[0])), lambda m: jnp.tanh(m[0])],
        forcing=lambda m: 0.1 * jnp.tanh(m),
        dissipation=lambda m, dt: m * jnp.exp(-0.1 * dt * np.tanh(1.5)),
    )
    ours, theirs = (cj.solve(x, MU, key=0, **RUN).mu[-1] for x in (s, bare))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    parts = system(net(), [lambda m, p: p(m), lambda m, p: 0.5 * m @ m])
    np.testing.assert_allclose(cj.solve(parts, MU, **RUN).mu[-1], plain(), rtol=1e-14)


def test_a_store_tells_programs_apart(tmp_path):
    store, options = tmp_path / "run.zarr", dict(dt=0.1, integrator=cj.HeunMK())
    cj.solve(system(net()), MU, t1=0.5, out=store, **options)
    longer = cj.solve(system(net(lambda x: jnp.tanh(x))), MU, t1=1.0, out=store, resume=True, **options)
    np.testing.assert_array_equal(longer.mu[-1], cj.solve(system(net()), MU, t1=1.0, **options).mu[-1])
    for other in (net(jnp.sin), net(scale=2.0), net(kind="max")):
        with pytest.raises(StoreError, match=r"system\.(hamiltonian|params)"):
            cj.solve(system(other), MU, t1=2.0, out=store, resume=True, **options)


@jax.tree_util.register_pytree_node_class
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_a_store_tells_the_numbers_of_any_class_apart(tmp_path):
    store, options = tmp_path / "run.zarr", dict(dt=0.1, integrator=cj.HeunMK())
    h = lambda m, p: p.a * m[0] + p.b * m @ m
    cj.solve(system(Pair(1.0, 2.0), h), MU, t1=0.5, out=store, **options)
    with pytest.raises(StoreError, match="params"):
        cj.solve(system(Pair(1.5, 2.0), h), MU, t1=1.0, out=store, resume=True, **options)


def test_systems_travel():
    """Their functions are traced: a lambda in params is not in the way."""
    act = lambda x: jnp.tanh(x)
    for data in (pickle.dumps(system(net(act))), serialize(system(net(act)))[0]):
        there = pickle.loads(data)
        np.testing.assert_array_equal(cj.solve(there, MU, **RUN).mu[-1], last(net(act)))
        there.with_params(net(lambda x: jnp.tanh(x)))
        with pytest.raises(ValueError, match="activation"):
            there.with_params(net(lambda x: jnp.sin(x)))


def test_nothing_is_compiled_again(compilations):
    last(net(lambda x: jnp.tanh(x)), backend="xla")
    with compilations() as count:
        last(net(lambda x: jnp.tanh(x), weight=2 * W), backend="xla")
    assert count.n == 0


def test_what_cannot_be_a_parameter():
    with pytest.raises(TypeError, match=r"params\['k'\] is a JAX key.*key_data"):
        system({"k": jax.random.key(0)}, lambda m, p: m @ m)
    with pytest.raises(TypeError, match=r"params\['k'\] must be an array of numbers"):
        system({"k": np.array(["x"])}, lambda m, p: m @ m)
    s = system(net())
    with pytest.raises(ValueError, match=r"params\.activation is the function sin, but the system was made with"):
        s.with_params(net(jnp.sin))
    with pytest.raises(ValueError, match=r"params\.kind is 'max'"):
        cj.ensemble(s, MU, members=2, params=net(kind="max"), **RUN)
    with pytest.raises(ValueError, match=r"params\.bias|structure"):
        s.with_params(Net(jnp.asarray(W), 1.5, jnp.tanh, "sum", jnp.ones(2)))
    with pytest.raises(ValueError, match=r"params\['f'\] is the function tanh, but the system was made with None"):
        system({"x": 1.0, "f": None}, lambda m, p: p["x"] * m @ m).with_params({"x": 1.0, "f": jnp.tanh})


def scaled(a, f=jnp.sin):
    return lambda x, b=2.0: f(x) * a


def test_contents_of_functions():
    """Equal code and captured values, and nothing less."""
    same = [(scaled(1.0), scaled(1.0)), (jnp.sin, jnp.sin), (jax.jit(scaled(np.ones(2))), jax.jit(scaled(np.ones(2))))]
    for a, b in same:
        assert content_key(a) == content_key(b)
    keys = [content_key(f) for f in (scaled(1.0), scaled(-1.0), scaled(0.0), scaled(-0.0), scaled(1), scaled(True))]
    keys += [content_key(f) for f in (scaled(1.0, jnp.cos), lambda x: x, lambda x: -x, jnp.sin, jax.nn.relu, "sin")]
    keys += [content_key(f) for f in (scaled(np.float32(1)), scaled(np.ones(2)), jax.jit(scaled(1.0)), W)]
    assert len(set(keys)) == len(keys)
    assert content_key(threading.Lock()) != content_key(threading.Lock())  # which have no contents
