"""A function of one member's numbers, evaluated by one step of native code."""

import jax
import jax.numpy as jnp
import numpy as np

from stepcompiler.compile import constant_pattern, native_loop
from stepcompiler.targets.cpu import Cpu


def step_of(fn):
    """The step that saves fn(x, *shared)."""
    return lambda shared, own, state, n, path: (state, fn(own[0], *shared), jnp.ones((), bool))


def made(fn, x, shared=(), width=1, limit=10**6, patterns=None):
    """Native code for fn(x, *shared) of one row of x."""
    one = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    patterns = [constant_pattern(s) for s in shared] if patterns is None else patterns
    return native_loop(step_of(fn), patterns, [one], None, None, Cpu(width), limit)


def called(native, x, shared=()):
    """What it gives for each row of x, and which groups of rows came out valid."""
    width = native.loop.width
    groups = len(x) // width
    n = np.zeros(groups, int)
    out = np.full((groups, 1, native.loop.saved, width), np.nan)
    own = np.ascontiguousarray(x.reshape(groups, width, -1).swapaxes(1, 2))
    nothing = np.empty((groups, 0, width)), np.empty((groups, 1, 0, width))
    uniforms = np.asarray(native.uniforms([jnp.asarray(s) for s in shared]))
    native.loop(n, 1, 0, 1, 0, nothing[0], uniforms, own, nothing[1], out)
    return out[:, 0].swapaxes(1, 2).reshape(len(x), -1), n == 1


def compiled(fn, x, shared=(), width=1, limit=10**6):
    """fn(x, *shared) for each row of x: the results, and which groups of rows came out valid."""
    return called(made(fn, x, shared, width, limit), x, shared)
