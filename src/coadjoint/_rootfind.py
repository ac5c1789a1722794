"""Root finding for implicit steps: chord, Newton and fixed-point iterations with fallbacks, differentiable.

Every iteration is a `while_loop` that starts only if there is work left, so that under `vmap` a fallback nobody needs
costs nothing and a member that has converged is frozen while its neighbours go on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Vector = Float[Array, " n"]

_STALLED = 1e-11  # a residual this small (scaled) that no longer falls has met round-off


class Info(NamedTuple):
    """How a step was solved: iterations, the last correction scaled by the unknown, whether it met the tolerance."""

    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]


class _State(NamedTuple):
    x: Vector
    delta: Float[Array, ""]  # norm of the last correction, scaled
    iterations: Int[Array, ""]
    done: Bool[Array, ""]  # converged
    lost: Bool[Array, ""]  # diverging: stop iterating


def explicit_info(x: Array) -> Info:
    """The report of a step with nothing to solve: it fails only if the result is not finite."""
    ok = jnp.all(jnp.isfinite(x))
    return Info(jnp.zeros((), int), jnp.zeros(()), ok)


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x))


def _iterate(
    correction: Callable[[Vector], Vector], start: _State, tol: float, max_steps: int, active: Bool[Array, ""]
) -> _State:
    """x ← x + correction(x) until the correction, scaled by x, is below tol or no longer falls at round-off."""
    limit = start.iterations + max_steps

    def going(s: _State) -> Array:
        return active & ~s.done & ~s.lost & (s.iterations < limit)

    def body(s: _State) -> _State:
        step = correction(s.x)
        x = s.x + step
        scale = jnp.maximum(_norm(x), _norm(s.x))
        delta = jnp.where(scale > 0, _norm(step) / jnp.where(scale > 0, scale, 1.0), 0.0)
        stalled = (delta <= _STALLED) & (delta >= 0.5 * s.delta)
        finite = jnp.isfinite(delta)
        lost = ~finite | ((delta > 4.0 * s.delta) & (s.iterations > start.iterations + 3))
        return _State(
            jnp.where(finite, x, s.x),
            jnp.where(finite, delta, jnp.inf),
            s.iterations + 1,
            finite & ((delta <= tol) | stalled),
            lost,
        )

    return jax.lax.while_loop(going, body, start)


def _fresh(x: Vector, s: _State) -> _State:
    false = jnp.zeros((), bool)
    return _State(x, jnp.full((), jnp.inf), s.iterations, false, false)


def _select(flag: Array, a: _State, b: _State) -> _State:
    return jax.tree.map(lambda u, v: jnp.where(flag, u, v), a, b)


def solve_root(
    f: Callable[[Vector, Float[Array, ""]], Vector],
    x0: Vector,
    *,
    method: str,
    jacobian0: Callable[[], Float[Array, "n n"]] | None,
    tol: float,
    max_steps: int,
    fallbacks: bool,
    dense: bool,
) -> tuple[Vector, Info]:
    """The root of f(x, 1) that continues from f(0, 0) = 0, with the derivative of the implicit function theorem.

    `f(x, λ)` is the step's equation with time step and increments scaled by λ. Methods:

    - "chord": x ← x − J₀⁻¹ f(x), with the frozen J₀ = `jacobian0()`;
    - "newton": x ← x − Df(x)⁻¹ f(x);
    - "fixed_point": x ← x − f(x), for f of the form x − g(x).

    When that fails and `fallbacks` is set: Newton from x0, then homotopy in λ from 0 to 1 with Newton as the
    corrector. `dense` says whether a Jacobian may be formed; if not, derivatives are solved for by GMRES.
    """

    def full(x: Vector) -> Vector:
        return f(x, jnp.ones(()))

    def newton_correction(lam: Array) -> Callable[[Vector], Vector]:
        return lambda x: -jnp.linalg.solve(jax.jacfwd(f)(x, lam), f(x, lam))

    def solve(_: Any, x0: Vector) -> tuple[Vector, tuple[Array, Array, Array]]:
        true, one = jnp.ones((), bool), jnp.ones(())
        start = _fresh(x0, _State(x0, one, jnp.zeros((), int), ~true, ~true))
        if method == "chord":
            assert jacobian0 is not None
            factor = jax.scipy.linalg.lu_factor(jacobian0())
            s = _iterate(lambda x: -jax.scipy.linalg.lu_solve(factor, full(x)), start, tol, max_steps, true)
        elif method == "newton":
            s = _iterate(newton_correction(one), start, tol, max_steps, true)
        else:
            s = _iterate(lambda x: -full(x), start, tol, max_steps, true)
        if fallbacks:
            far = _homotopy(newton_correction, _fresh(jnp.zeros_like(x0), s), tol, ~s.done)
            s = _select(s.done, s, far)
        return s.x, (s.iterations.astype(float), s.delta, s.done.astype(float))  # `custom_root` wants floats

    def tangent_solve(g: Callable[[Vector], Vector], y: Vector) -> Vector:
        if dense:
            return jnp.linalg.solve(jax.jacfwd(g)(y), y)
        return jax.scipy.sparse.linalg.gmres(g, y, tol=1e-14, restart=20, maxiter=20, solve_method="batched")[0]

    x, (iterations, residual, converged) = jax.lax.custom_root(full, x0, solve, tangent_solve, has_aux=True)
    return x, jax.lax.stop_gradient(Info(iterations.astype(int), residual, converged > 0))


def _homotopy(newton_correction: Callable, start: _State, tol: float, active: Array) -> _State:
    """Newton from x = 0 at λ = 1; where that fails, the root is followed from λ = 0 in smaller steps of λ.

    The step of λ is doubled after success and halved after failure.
    """
    max_trials, smallest = 200, 1e-4

    def going(state):
        _, lam, dlam, trials = state
        return active & (lam < 1.0) & (dlam > smallest) & (trials < max_trials)

    def body(state):
        s, lam, dlam, trials = state
        target = jnp.minimum(lam + dlam, 1.0)
        trial = _iterate(newton_correction(target), _fresh(s.x, s), tol, 15, active)
        ok = trial.done
        kept = _State(jnp.where(ok, trial.x, s.x), trial.delta, trial.iterations, ok & (target >= 1.0), ~ok)
        return kept, jnp.where(ok, target, lam), jnp.where(ok, 2.0 * dlam, 0.5 * dlam), trials + 1

    s, *_ = jax.lax.while_loop(going, body, (start, jnp.zeros(()), jnp.ones(()), jnp.zeros((), int)))
    return s
