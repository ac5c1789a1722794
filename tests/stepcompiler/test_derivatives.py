"""Functions with a derivative by a rule: the rule holds at every order, under every transformation."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import coadjoint as cj
from stepcompiler.derivatives import custom_derivative


@custom_derivative
def known(value, x, power):
    """sin x to a power, whose value is known."""
    return value


@known.def_rule
def _slope(out, primals, tangents):
    (_, x, power), (_, dx, _) = primals, tangents
    return power * known(jax.lax.stop_gradient(jnp.sin(x) ** (power - 1)), x, power - 1) * jnp.cos(x) * dx


def by_rule(x):
    return known(checkpoint_name(jax.lax.stop_gradient(jnp.sin(x) ** 4), "value"), x, 4)


def plain(x):
    return jnp.sin(x) ** 4


def in_a_scan(f, wrap):
    body = wrap(lambda x, _: (f(x), f(x) ** 2))

    def total(x):
        end, rows = jax.lax.scan(lambda x, _: jax.lax.scan(body, x, None, length=2), x, None, length=2)
        return jnp.sum(end + jnp.sum(rows))

    return total


WRAPS = {
    "plain": lambda body: body,
    "names": lambda body: jax.checkpoint(body, policy=jax.checkpoint_policies.save_only_these_names("value")),
    "vmap": lambda body: jax.vmap(body, in_axes=(0, None)),
}
FORWARD = lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]
REVERSE = lambda f: lambda x: jnp.sum(jax.grad(f)(x))


@pytest.mark.parametrize("wrap", WRAPS)
def test_the_rule_holds_at_every_order(wrap):
    """In a scan inside a scan, where `jax.custom_jvp` loses its rule."""
    compositions = lambda f: (FORWARD(REVERSE(f)), REVERSE(REVERSE(f)), REVERSE(FORWARD(REVERSE(f))))
    x = jnp.array([0.9, 1.1])
    values = lambda f: jax.jit(lambda x: [jnp.sum(g(x)) for g in compositions(in_a_scan(f, WRAPS[wrap]))])(x)
    np.testing.assert_allclose(values(by_rule), values(plain), rtol=1e-9)


def test_what_a_function_captures():
    """An array that is differentiated must be an argument."""
    f = custom_derivative(lambda x: x)
    f.def_rule(lambda out, primals, tangents: tangents[0])
    assert float(jax.grad(lambda x: f(2.0 * x))(1.0)) == 2.0

    def captures(y):
        g = custom_derivative(lambda x: x * y)
        g.def_rule(lambda out, primals, tangents: tangents[0])
        return g(y)

    with pytest.raises(TypeError, match="captures an array that is differentiated; pass it as an argument"):
        jax.grad(captures)(1.0)


def test_no_rule_that_a_scan_loses():
    """The sources use this decorator alone."""
    for path in Path(cj.__file__).parents[1].rglob("*.py"):
        assert not re.search(r"custom_[jv][vj]p\b[(]|@.*custom_[jv][vj]p|filter_custom_", path.read_text("utf-8")), path
