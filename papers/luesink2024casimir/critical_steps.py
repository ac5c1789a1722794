"""Critical step sizes: the chord iteration with the signs of (32) and (34) as printed, and with matching signs."""

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import diag, spread, summary, top, verdict

SIGNS = {"as printed": -1, "consistent": 1}


def run(p, key, say):
    """For each top and each sign, the share of converged runs by step size, and the largest step that converges."""
    steps = {"as printed": _range(**p.printed_steps), "consistent": _range(**p.consistent_steps)}
    shares, findings = {}, {}
    for inertia, paper in zip(p.inertias, p.paper, strict=True):
        critical = {}
        for name, sign in SIGNS.items():
            say(f"{diag(inertia)}, {name}")
            solved = _solved(p, inertia, sign, steps[name], key)
            shares[inertia[1], name] = solved.mean(axis=1)
            critical[name] = _critical(steps[name], solved)
        far = _library(p, inertia, key)
        findings[f"critical-step-{''.join(map(str, inertia))}"] = _finding(p, paper, critical, far)
    return Outcome(findings, (steps, shares))


def _range(first, last, by):
    return np.arange(first, last + 1e-9, by)


def _finding(p, paper, critical, far):
    printed, consistent = (np.median(critical[name]) for name in SIGNS)
    agrees = abs(printed / paper - 1) < p.agrees_within
    ours = "; ".join(f"{name}: {spread(x, '.2f')}" for name, x in critical.items())
    return Finding(
        f"{ours}; with fallbacks {far:.0%} of the steps at dt = {p.fallback_step:g}",
        verdict(agrees and consistent < 1.5 * paper, agrees),
        p.realisations,
        {name: summary(x) for name, x in critical.items()} | {"fallbacks": far},
    )


def _critical(steps, solved):
    """For each realisation the first step size at which a run does not converge."""
    failed = ~solved
    return np.where(failed.any(axis=0), steps[failed.argmax(axis=0)], steps[-1])


def _solved(p, inertia, sign, steps, key):
    """Whether every step of a run converges: (step sizes, realisations)."""
    _, mu0 = top(p, inertia)
    most = int(np.ceil(p.t1 / p.printed_steps["first"]))  # of either sign, so that it is one program
    normals = np.random.default_rng([key, *inertia]).standard_normal((most, p.realisations))
    dt = np.repeat(steps, p.realisations)
    draws = np.tile(normals, (1, len(steps)))  # (most, lanes): a realisation keeps its normals for every step size
    given = {"inertia": inertia, "chi": p.chi, "alpha": p.alpha}
    body = {name: jnp.array(x, float) for name, x in given.items()}
    solved = _march(body, mu0, sign, jnp.array(dt), jnp.array(draws), p.t1, p.iterations, p.tolerance)
    return np.asarray(solved).reshape(len(steps), p.realisations)


@jax.jit
def _march(top, mu0, sign, dt, draws, t1, iterations, tolerance):
    """Run all lanes to t1 and tell which of them never failed."""
    algebra = cj.SE3()
    hessian = jnp.diag(jnp.concatenate([1 / top["inertia"], jnp.zeros(3)]))

    def zeta(mu, dt, dW):
        """∂h dt + ∂h₁ dW."""
        return jnp.concatenate([dt * mu[:3] / top["inertia"] + dW * top["alpha"], -dt * top["chi"]])

    def root(mu, dt, dW):
        """The chord iteration (35) on (32), with exp(sign·ad*), and with (34), the Jacobian for exp(+ad*)."""
        inverse = jnp.linalg.inv(jnp.eye(6) + 0.5 * dt * hessian @ algebra.poisson(mu))

        def going(state):
            _, change, k = state
            return (change > tolerance) & (change < 1e6) & (k < iterations)

        def body(state):
            sigma, _, k = state
            step = inverse @ (sigma - zeta(0.5 * (mu + algebra.flow(sign * sigma, mu)), dt, dW))
            return sigma - step, jnp.linalg.norm(step) / jnp.maximum(jnp.linalg.norm(sigma), 1e-3), k + 1

        sigma, change, _ = jax.lax.while_loop(going, body, (jnp.zeros(6), 1.0, 0))
        return sigma, change <= tolerance

    def step(state, inputs):
        mu, ok = state
        n, normal = inputs
        active = ok & (n * dt < t1 - 1e-9)
        sigma, solved = jax.vmap(root)(mu, jnp.where(active, dt, 0.0), jnp.where(active, jnp.sqrt(dt) * normal, 0.0))
        new = jax.vmap(lambda s, m: algebra.flow(sign * s, m))(sigma, mu)
        return (jnp.where((active & solved)[:, None], new, mu), ok & (solved | ~active)), None

    start = (jnp.broadcast_to(mu0, (len(dt), 6)), jnp.ones(len(dt), bool))
    (_, ok), _ = jax.lax.scan(step, start, (jnp.arange(len(draws)), draws))
    return ok


def _library(p, inertia, key):
    """The share of steps that the library's own solver solves at a large step."""
    system, mu0 = top(p, inertia)
    sol = cj.solve(system, mu0, t1=40 * p.fallback_step, dt=p.fallback_step, key=key, throw=False)
    return 1 - sol.stats.unsolved / sol.stats.steps


def draw(p, data):
    """The share of converged runs against the step."""
    steps, shares = data
    fig = plotting.figure(plotting.PAGE, 2.8)
    for ax, inertia, paper in zip(fig.subplots(1, 2, sharey=True), p.inertias, p.paper, strict=True):
        for name, line in zip(SIGNS, ("o-", "s-"), strict=True):
            label = {"as printed": "(32) with (34), as printed", "consistent": "consistent signs"}[name]
            ax.plot(steps[name], shares[inertia[1], name], line, markersize=2.5, label=label)
        ax.axvline(paper, linestyle="--", color="0.5", label="paper")
        ax.set(xlabel="step dt", title=f"inertia {diag(inertia)}", xlim=(0, steps["consistent"][-1]))
    fig.axes[0].set_ylabel("share of converged runs")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return {"critical-steps": fig}
