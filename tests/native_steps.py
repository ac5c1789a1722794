"""A function of one member's numbers, evaluated by one step of native code."""

import jax
import jax.numpy as jnp
import numpy as np

from stepcompiler.compile import compile_step
from stepcompiler.kernel import Signature, constant_pattern
from stepcompiler.targets.cpu import Cpu


def step_of(fn):
    """The step that saves fn(x, *shared)."""
    return lambda shared, own, state, n, path: (state, fn(own[0], *shared), jnp.ones((), bool))


def made(fn, x, shared=(), width=1, limit=10**6, patterns=None):
    """Native code for fn(x, *shared) of one row of x."""
    one = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    patterns = [constant_pattern(s) for s in shared] if patterns is None else patterns
    return compile_step(step_of(fn), Signature(patterns, [one]), Cpu(width), max_operations=limit)


def called(native, x, shared=()):
    """What it gives for each row of x, and which groups of rows came out valid."""
    buffers = native.allocate(len(x), slots=1)
    native.set_inputs(buffers, shared=[jnp.asarray(s) for s in shared], member=[x])
    buffers.saved = np.full(buffers.saved.shape, np.nan)
    native.run(buffers, stop=1)
    return buffers.saved[:, 0].swapaxes(1, 2).reshape(len(x), -1), buffers.n == 1


def compiled(fn, x, shared=(), width=1, limit=10**6):
    """fn(x, *shared) for each row of x: the results, and which groups of rows came out valid."""
    return called(made(fn, x, shared, width, limit), x, shared)
