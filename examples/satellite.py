"""Attitude and gyro bias of a satellite from its star tracker and its gyro, by a Kalman filter on the group.

    python examples/satellite.py           # a figure of one run, and means of six

A satellite without wheels tumbles slowly, and small random torques act on it. Every five seconds a star tracker
measures its attitude and a gyro its rate. The bias of the gyro is a random walk. The filter follows momentum, bias and
attitude of an ensemble of satellites. Initially it has rough values of all three.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj

INERTIA = np.array([8.0, 10.0, 6.0])  # kg m²
TORQUE = 3e-4  # N m √s
DRIFT = 2e-5  # rad/s/√s
RATE = np.array([0.02, -0.03, 0.05])  # rad/s
UNKNOWN = {"attitude": 0.02, "rate": 2e-3, "bias": 2e-3}  # standard deviations at the start
DT, STEPS, CYCLES = 0.5, 10, 60
TIMES = DT * STEPS * np.arange(1, CYCLES + 1)
TRACKER = cj.models.StarTracker([1e-4, 1e-4, 8e-4])  # rad; the third axis is the boresight
GYRO = cj.models.Gyro(3e-4)  # rad/s
CRAFT, _ = cj.models.spacecraft(INERTIA, wheels=None, disturbance=TORQUE, gyro_drift=DRIFT)


def errors(mu: Any, y: Any, p: Any, g: Any) -> Any:
    """The errors of both sensors: a rotation vector and a rate."""
    rate, bias = cj.models.body_rate(mu, p), mu[3:]
    return jnp.concatenate([TRACKER.error(y[:4], g[0]), GYRO.error(y[4:], rate, bias)])


def prior(key: int, members: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """A sample of the states and group elements at the start."""
    z = np.random.default_rng(key).standard_normal((3, members, 3))
    momentum = INERTIA * (RATE + UNKNOWN["rate"] * z[0])
    attitude = jax.vmap(cj.SO3().group_exp)(UNKNOWN["attitude"] * z[2])
    return np.hstack([momentum, UNKNOWN["bias"] * z[1]]), (np.asarray(attitude), np.tile(np.eye(3), (members, 1, 1)))


def twin(key: int) -> dict[str, np.ndarray]:
    """A true satellite, and what its sensors measure."""
    mu0, g0 = prior(key, 1)
    run = cj.solve(
        CRAFT, mu0[0], t1=TIMES[-1], dt=DT, key=key, save_every=STEPS, group=True, g0=jax.tree.map(lambda x: x[0], g0)
    )
    R, rate, bias = run.g[0][1:], run.mu[1:, :3] / INERTIA, run.mu[1:, 3:]
    keys = jax.random.split(jax.random.key(key), (2, CYCLES))
    stars, rates = jax.vmap(TRACKER.measure)(keys[0], R), jax.vmap(GYRO.measure)(keys[1], rate, bias)
    return {"attitude": R, "rate": rate, "bias": bias, "y": np.hstack([stars, rates])}


def estimate(key: int = 0, members: int = 200) -> dict[str, Any]:
    """The filter for one twin: errors of all members, and of their mean, with the share of truth in 90 % bands."""
    true = twin(key)
    mu0, g0 = prior(100_000 + key, members)
    sensors = cj.data.GaussianError(errors, std=np.concatenate([TRACKER.noise, GYRO.noise]))
    run = cj.data.GroupKalman(sensors, members).run(
        CRAFT, mu0, true["y"], times=TIMES, dt=DT, key=key, g0=g0, keep_members=True,
        save=lambda mu, p, g: {"rate": cj.models.body_rate(mu, p), "bias": mu[3:], "attitude": g[0]},
    )  # fmt: skip
    rotation = jax.vmap(jax.vmap(lambda R, M: 2 * cj.rotation_to_quaternion(R.T @ M)[1:]), in_axes=(None, 0))
    found: dict[str, Any] = {"true": true, "run": run, "error": {}, "spread": {}}
    for name in UNKNOWN:
        own = run.members[name]
        error = np.asarray(rotation(true[name], own)) if name == "attitude" else own - true[name]
        low, high = np.quantile(error, [0.05, 0.95], axis=0)
        found["error"][name], found["spread"][name] = error.mean(axis=0), error.std(axis=0, ddof=1)
        late = error.mean(axis=0)[CYCLES // 3 :]
        found[f"RMS error of the {name}"] = float(np.sqrt(np.mean(late**2)))
        found[f"coverage of the {name}"] = float(np.mean((low < 0) & (high > 0)))
    return found


def draw(found: dict[str, Any]) -> Any:
    """Errors and 90 % bands of attitude, rate and bias."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(9, 5), layout="constrained")
    axes = fig.subplots(2, 2)
    true, t = found["true"], found["run"].t
    units = {"attitude": ("mrad", 1e3), "rate": ("mrad/s", 1e3), "bias": ("mrad/s", 1e3)}
    noise = {"attitude": np.asarray(TRACKER.noise), "rate": np.asarray(GYRO.noise)}
    for ax, name in zip(axes.ravel(), units, strict=False):
        unit, scale = units[name]
        for i in (0, 2):
            error, spread = scale * found["error"][name][:, i], scale * found["spread"][name][:, i]
            (line,) = ax.plot(t, error, linewidth=1.1, label="xyz"[i])
            ax.fill_between(t, -1.645 * spread, 1.645 * spread, color=line.get_color(), alpha=0.2, linewidth=0)
            if name in noise:
                ax.axhline(scale * noise[name][i], color=line.get_color(), linestyle=":", linewidth=0.9)
        top = 4 * scale * float(np.median(found["spread"][name][:, 2]))
        ax.set(xlabel="time (s)", ylabel=f"error ({unit})", ylim=(-top, top), xlim=(0, t[-1]))
        ax.set_title(f"error of the {name}", fontsize=9)
    axes[0, 0].legend(fontsize=8, loc="upper right")
    ax = axes[1, 1]
    for i in (0, 2):
        (line,) = ax.plot(t, 1e3 * true["bias"][:, i], linewidth=1.1, label="xyz"[i])
        middle, spread = (1e3 * x[:, i] for x in (found["run"].mean["bias"], found["spread"]["bias"]))
        ax.fill_between(t, middle - 1.645 * spread, middle + 1.645 * spread, color=line.get_color(), alpha=0.25)
    ax.set(xlabel="time (s)", ylabel="bias (mrad/s)", xlim=(0, t[-1]), ylim=(-1.2, 2.2))
    ax.set_title("bias of the gyro: truth and 90 % band", fontsize=9)
    ax.legend(fontsize=8)
    return fig


if __name__ == "__main__":
    runs = [estimate(key) for key in range(6)]
    numbers = {k: float(np.mean([run[k] for run in runs])) for k, v in runs[0].items() if isinstance(v, float)}
    print(", ".join(f"{k} {v:.2g}" for k, v in numbers.items()))
    draw(runs[0]).savefig("satellite.png", dpi=130)
    Path("satellite.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
