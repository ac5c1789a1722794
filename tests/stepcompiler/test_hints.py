"""Hints to the compiler: under every transformation of JAX they are the program they wrap."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import called, compiled, made

import coadjoint as cj
from stepcompiler.hints import likely, low_precision, no_fma, unlikely
from stepcompiler.jaxprs.optimistic import optimistic_map


def plain(fn):
    """A decorator that changes nothing."""
    return fn


def programs(likely, no_fma, unlikely, low_precision):
    """Functions of three numbers with these hints."""
    scale = jnp.array([0.3, -0.7, 1.1])

    @unlikely
    def pair(case, otherwise, x, k):
        y, n = otherwise
        near = likely(jnp.sum(x) < 100.0)
        slope = jnp.where(near, jnp.sin(x) * scale, x / 4.0)
        return jnp.where(case, slope, y), jnp.where(case, n + k, n)

    def branch(x):
        y, n = pair(x[0] > 0.5, (x * x, 7), x[::-1], 2)
        return y * n

    def loop(x):
        halve = unlikely(lambda case, y: jnp.where(case, 0.3 * y, y))
        return jax.lax.while_loop(lambda y: jnp.sum(y * y) > 0.3, lambda y: halve(y[0] > 0.2, 0.8 * y), x)

    def scan(x):
        step = lambda y, a: (low_precision(lambda y: y * a + jnp.cos(y))(y), pair(a > 0.3, (y, 1), y, 3)[0])
        return jnp.sum(jax.lax.scan(step, x, x)[1], axis=0)

    captured = lambda x: low_precision(lambda y: x[0] * y + scale)(x * x)
    many = lambda x: jax.vmap(lambda a, y: pair(a > 0.5, (y, 1), x, 2)[0], (0, 0))(x, jnp.outer(x, x))
    shared = lambda x: jax.vmap(lambda a: pair(x[0] > 0.5, (x, 1), a * x, 2)[0])(x)
    across = lambda x: jax.vmap(lambda y: pair(y[0] > 0.5, (y, 1), y, 2)[0], 1, 1)(jnp.outer(x, x * x))
    return {
        "likely": lambda x: jnp.where(likely(x < 0.4), x * x, 1.0 - x),
        "no fused operation": lambda x: no_fma(x * x) + x * scale,
        "low precision": lambda x: low_precision(lambda x: jnp.sin(x) * x)(x),
        "low precision of captured numbers": captured,
        "unlikely": branch,
        "unlikely, of nothing else": lambda x: unlikely(lambda c, y: jnp.where(c, y * y, y))(x[0] > 0.5, x),
        "unlikely, many conditions": many,
        "unlikely, one condition for many": shared,
        "unlikely, over columns": across,
        "in a loop": loop,
        "in a scan": scan,
    }


HINTED = programs(likely, no_fma, unlikely, low_precision)
PLAIN = programs(plain, plain, plain, plain)
X = np.array([[0.9, 0.2, -0.4], [0.1, 0.6, 0.3], [0.7, -0.1, 0.8], [-0.2, 0.3, 0.45]])


def total(fn):
    """A number."""
    return lambda x: jnp.sum(jnp.cos(fn(x)))


TRANSFORMED = {
    "as it is": lambda fn: lambda x: fn(x[0]),
    "jit": lambda fn: lambda x: jax.jit(fn)(x[0]),
    "vmap": lambda fn: jax.vmap(fn),
    "vmap of columns": lambda fn: lambda x: jax.vmap(fn, 1, 1)(x.T),
    "vmap twice": lambda fn: lambda x: jax.vmap(jax.vmap(fn))(jnp.stack([x, x[::-1]])),
    "jvp": lambda fn: lambda x: jax.jvp(fn, (x[0],), (x[1],)),
    "jvp of vmap": lambda fn: lambda x: jax.jvp(jax.vmap(fn), (x,), (x[::-1],)),
    "vmap of jvp": lambda fn: jax.vmap(lambda x: jax.jvp(fn, (x,), (x[::-1],))[1]),
    "jacobian": lambda fn: lambda x: jax.jacfwd(fn)(x[0]),
    "second derivative": lambda fn: lambda x: jax.jacfwd(jax.jacfwd(fn))(x[0]),
    "loop": lambda fn: lambda x: jax.lax.fori_loop(0, x.shape[0] - 1, lambda k, y: jnp.sum(fn(x[k] + y)) / 9, 0.0),
    "cond": lambda fn: lambda x: jax.vmap(lambda x: jax.lax.cond(x[0] > 0.3, fn, lambda x: 2 * fn(x), x))(x),
}
REVERSED = {
    "gradient": lambda fn: lambda x: jax.grad(total(fn))(x[0]),
    "gradient of vmap": lambda fn: jax.grad(total(jax.vmap(fn))),
    "vmap of gradient": lambda fn: jax.vmap(jax.grad(total(fn))),
    "linearize": lambda fn: lambda x: jax.linearize(fn, x[0])[1](x[1]),
    "checkpoint": lambda fn: jax.grad(total(jax.checkpoint(jax.vmap(fn)))),
    "hessian": lambda fn: lambda x: jax.hessian(total(fn))(x[0]),
    "reverse twice": lambda fn: lambda x: jax.jacrev(jax.grad(total(fn)))(x[0]),
}


def check_transforms(name, transforms):
    """Of the program with hints and without."""
    both = [jax.jit(lambda x, fn=p[name]: {k: t(fn)(x) for k, t in transforms.items()}) for p in (HINTED, PLAIN)]
    found, expected = (f(X) for f in both)
    for how in transforms:
        compare = lambda a, b, how=how: np.testing.assert_allclose(a, b, 1e-13, 1e-14, err_msg=how)
        jax.tree.map(compare, found[how], expected[how])


FEW = ("vmap of columns", "jvp of vmap")


@pytest.mark.parametrize("name", HINTED)
def test_a_hint_is_what_it_wraps(name):
    check_transforms(name, {how: TRANSFORMED[how] for how in FEW})
    for how in ("as it is", "jvp"):  # not compiled
        found, expected = (TRANSFORMED[how](p[name])(X) for p in (HINTED, PLAIN))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-14, 1e-15), found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", HINTED)
def test_a_hint_is_what_it_wraps_under_every_transformation(name):
    check_transforms(name, TRANSFORMED if name == "in a loop" else TRANSFORMED | REVERSED)


def test_gradients_of_hints():
    for name in ("unlikely, many conditions", "in a scan"):
        check_transforms(name, {"gradient": REVERSED["gradient"]})


@pytest.mark.parametrize("name", HINTED)
def test_a_hint_in_native_code(name):
    """To double precision, or to single precision where that is enough; single runs and groups, rows, derivatives."""
    tolerance = 1e-5 if "low" in name or "scan" in name else 1e-14
    fn = HINTED[name]
    rows = lambda x: jax.vmap(fn, 1, 1)(x.reshape(3, 3)).ravel()
    slope = lambda x: jax.jvp(fn, (x[:3],), (x[3:6],))[1].ravel()
    x = np.concatenate([np.tile(X, 3), 0.4 * np.tile(X[::-1], 3)])
    x[:, 3:] *= 0.7
    for one, width in (((lambda x: fn(x[:3])), 1), (rows, 8), (slope, 8)):
        out, valid = compiled(one, x, width=width)
        good = np.repeat(valid, width)
        np.testing.assert_allclose(out[good], jax.vmap(one)(x).reshape(out.shape)[good], tolerance, tolerance)
        assert name == "likely" or valid.all()


def test_a_linear_function_with_hints_is_transposed():
    fn = low_precision(lambda x: 2.0 * x[::-1])
    np.testing.assert_array_equal(jax.linear_transpose(fn, jnp.zeros(3))(jnp.arange(3.0))[0], [4.0, 2.0, 0.0])


def test_a_known_false_condition_stays_false():
    fn = lambda x: jnp.where(likely(jnp.zeros(3, bool)), x, -x)
    np.testing.assert_array_equal(compiled(fn, X)[0], -X)


def test_what_is_unlikely_must_return_the_likes_of_otherwise():
    with pytest.raises(TypeError, match=r"likes of `otherwise`, but returns float64\[3\]"):
        unlikely(lambda case, y, x: x)(True, 1.0, X[0])
    with pytest.raises(TypeError, match=r"scalar condition, not one of the shape \(3,\)"):
        unlikely(lambda case, y: y)(X[0] > 0, 1.0)


def test_optimistic_map_takes_any_function_of_that_name():
    """The names of functions have no effect."""

    @jax.jit
    def likely(x):
        return x < 0.2

    fn = lambda x: jnp.where(likely(x), x, -x)
    np.testing.assert_array_equal(optimistic_map(fn, X), jax.vmap(jax.vmap(fn))(X))


NAMES = """likely unlikely rough roughly rounded seldom guessed low_precision no_fma single_precision optimistic_map
stepcompiler_likely stepcompiler_unlikely stepcompiler_no_fma stepcompiler_low_precision hinted""".split()


def function_called(name):
    """A jitted function of a user's, with this name, of one, two or more arguments."""

    def fn(z, *others):
        return 2.0 * z + sum(map(jnp.sum, others))

    fn.__name__ = fn.__qualname__ = name
    return jax.jit(fn)


def user_program(f):
    """A function of three numbers that uses a user's function everywhere."""

    @jax.custom_jvp
    def own(x):
        return f(x)

    own.defjvp(lambda primals, tangents: (own(*primals), f(*tangents)))

    def run(x):
        y = jax.lax.while_loop(lambda y: f(y[0]) < 9.0, lambda y: f(jnp.abs(y)) + 0.1, x)
        z = jax.lax.cond(x[0] > 0.3, lambda x: f(x, x * x), lambda x: f(x), x)
        both = jnp.where(f(jnp.where(x > 0.5, 1.0, 0.0)) > 1.0, x, f(x, 3.0))
        return own(x) + y + z + both + f(x[0], x) + jax.grad(lambda x: jnp.sum(f(x * x)))(x)

    return run


ROWS = np.concatenate([X, 0.4 * X])


@cache
def results_of_user_program(name):
    return called(made(user_program(function_called(name)), ROWS, width=8), ROWS)[0]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_functions_mean_nothing(name):
    """A user's jitted function with the name of a hint has bitwise the same results as under any other name."""
    found, expected = results_of_user_program(name), results_of_user_program("other")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, jax.vmap(user_program(function_called("other")))(ROWS), 1e-14)


@cache
def run_of_system(name, backend):
    f = function_called(name)
    h = lambda m: 0.3 * jnp.sum(f(m) * m / jnp.array([1.0, 2.0, 3.0]))
    system = cj.System(cj.SO3(), h, forcing=lambda m: f(m)[::-1])
    sol = cj.solve(system, [0.3, -0.4, 0.8], t1=1.0, dt=0.25, integrator=cj.HeunMK(), backend=backend)
    return np.asarray(sol.mu)


@pytest.mark.parametrize("name", ["likely", "rounded", "rough", "seldom", "unlikely", "no_fma"])
def test_names_in_a_system_mean_nothing(name):
    """In the Hamiltonian and in a forcing, natively and by XLA."""

    found = run_of_system(name, "native")
    np.testing.assert_array_equal(found, run_of_system("other", "native"))
    np.testing.assert_allclose(found, run_of_system("other", "xla"), 0, 1e-14)


@pytest.mark.parametrize("copies", [3, 4])
def test_hints_of_copies(copies):
    """With steps for which the unlikely holds: four copies were off by 1."""
    inertia, chi = jnp.array([4.0, 2.0, 1.0]), jnp.array([0.0, 0.0, 1.0])

    def h(mu):
        x = mu.reshape(copies, 6)
        return jnp.sum(0.5 * x[:, :3] ** 2 / inertia) - jnp.sum(x[:, 3:] * chi) + 0.1 * jnp.sum(x[:, 0]) ** 2

    system = cj.System(cj.SE3() ** copies, h)
    start = np.random.default_rng(0).standard_normal(6 * copies)
    run = lambda how: cj.solve(system, start, t1=4.0, dt=0.4, integrator=cj.RKMK("rk4"), backend=how)
    np.testing.assert_allclose(run("native").mu, run("xla").mu, 0, 1e-13)
