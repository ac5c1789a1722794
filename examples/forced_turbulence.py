"""Stationary turbulence on the sphere, stirred at small scales: with and without rotation, and with SALT noise.

    python examples/forced_turbulence.py      # n = 129, three runs: writes a figure and its numbers

White stirring of the degrees 18 to 22 supplies energy at a constant mean rate. Drag takes it at large scales and
hyperviscosity at small ones, until both balance. With rotation the flow forms zonal jets. A second run continues with
SALT noise, and a third has no rotation. The spectra are means over the second half of each run.
"""  # fmt: skip

import json
from pathlib import Path
from typing import Any

import numpy as np

import coadjoint as cj

METHOD = cj.IsospectralMidpoint(tol=1e-9)
FORCED = (18, 22)


def stirred(n: int, rotation: float, drag: float, rate: float, salt: float = 0.0) -> tuple[Any, Any]:
    """A sphere whose stirring supplies the energy `rate` per time on average, and its state of rest."""
    forced = (FORCED[0] * n // 129, FORCED[1] * n // 129)
    l = np.arange(forced[0], forced[1] + 1)
    amplitude = np.sqrt(8 * np.pi * rate / np.sum((2 * l + 1) / (l * (l + 1))))
    noise = {"noise_shells": (forced[0] // 2, forced[1] // 2), "amplitude": salt} if salt else {}
    return cj.models.euler_sphere(
        n, rotation=rotation, omega=np.zeros(n * n), drag=drag, hyperviscosity=8.0 / (n * (n - 1.0)) ** 4,
        stirring_shells=forced, stirring_amplitude=amplitude, **noise,
    )  # fmt: skip


def run(system: Any, W0: Any, t1: float, dt: float, points: int, key: int) -> dict[str, Any]:
    """Energy, spectrum, flux and the zonal mean at 200 times, and the last state."""
    flow = cj.fluids.of(system)
    save = lambda W: {
        "energy": flow.energy(W), "enstrophy": flow.enstrophy(W), "spectrum": flow.spectrum(W), "flux": flow.flux(W),
        "zonal": flow.zonal_mean(W, points), "W": W,
    }  # fmt: skip
    steps = round(t1 / dt)
    sol = cj.solve(system, W0, t1=t1, dt=dt, save=save, save_every=max(1, steps // 200), integrator=METHOD, key=key)
    found = {k: np.asarray(v) for k, v in sol.saved.items() if k != "W"}
    found |= {"t": np.asarray(sol.t), "W": np.asarray(sol.saved["W"][-1])}
    return found


def turbulence(
    n: int = 129, t1: float = 100.0, dt: float = 0.0125, rotation: float = 25.0, drag: float = 0.03, rate: float = 0.006
) -> dict[str, Any]:
    """Three runs: with rotation, the same continued with SALT, and without rotation."""
    found: dict[str, Any] = {"n": n, "rate": rate, "drag": drag, "rotation": rotation}
    plans = (("rotating", rotation, 0.0, t1), ("salt", rotation, 4e-4, t1 / 2), ("still", 0.0, 0.0, t1))
    for name, Omega, salt, end in plans:
        system, W0 = stirred(n, Omega, drag, rate, salt)
        found[name] = run(system, found["rotating"]["W"] if salt else W0, end, dt, n, key=1 + len(found))
        found[name]["flow"] = cj.fluids.of(system)
    return found


def late(x: np.ndarray) -> np.ndarray:
    """The second half of a run."""
    return x[len(x) // 2 :]


def profile(one: dict[str, Any]) -> np.ndarray:
    """The zonal mean of the velocity, averaged over the second half."""
    return late(one["zonal"]).mean(axis=0)


def slope(found: dict[str, Any], name: str) -> float:
    """Of the mean spectrum between 1.2 and 2.7 times the largest degree of the stirring."""
    l = np.arange(FORCED[1] * 12 * found["n"] // 1290 + 1, FORCED[1] * 27 * found["n"] // 1290 + 2)
    return float(np.polyfit(np.log(l), np.log(late(found[name]["spectrum"]).mean(axis=0)[l]), 1)[0])


def numbers(found: dict[str, Any]) -> dict[str, float]:
    """Means over the second halves, their change within it, the share of zonal flow, and the scale of Rhines."""
    latitude = found["rotating"]["flow"].surface.grid(found["n"])[0]
    area = np.cos(latitude) / np.cos(latitude).sum()
    out: dict[str, float] = {}
    for name in ("rotating", "salt", "still"):
        E = late(found[name]["energy"])
        half = len(E) // 2
        zonal = 0.5 * np.mean(late(found[name]["zonal"]) ** 2 @ area)
        out |= {
            f"{name}: energy": float(E.mean()),
            f"{name}: change of the mean energy between the last two quarters": float(
                E[half:].mean() / E[:half].mean() - 1
            ),
            f"{name}: share of drag in the dissipation": float(2 * found["drag"] * E.mean() / found["rate"]),
            f"{name}: share of the zonal mean in the energy": float(zonal / E.mean()),
        }
        u = profile(found[name])
        top = (u[1:-1] > u[:-2]) & (u[1:-1] > u[2:]) & (u[1:-1] > 0.2 * np.sqrt(2 * E.mean()))
        out[f"{name}: jets towards the east below 80°"] = float(np.sum(top & (np.abs(latitude[1:-1]) < np.radians(80))))
        out[f"{name}: degree of the largest mean energy"] = float(late(found[name]["spectrum"]).mean(axis=0).argmax())
        out[f"{name}: slope of E(l) beyond the stirring"] = slope(found, name)
    out["degree of Rhines √(Ω/U)"] = float(np.sqrt(found["rotation"] / np.sqrt(2 * out["rotating: energy"])))
    return out


def draw(found: dict[str, Any]) -> Any:
    """Vorticity at the end, the jets along time, mean profiles, mean spectra and energies."""
    import runpy

    from matplotlib.figure import Figure

    globe = runpy.run_path(str(Path(__file__).with_name("fluids.py")))["globe"]
    names = {"rotating": "rotation", "salt": "rotation and SALT", "still": "no rotation"}
    fig = Figure(figsize=(10, 5.6), layout="constrained")
    grid = fig.add_gridspec(2, 12, height_ratios=(1, 1.5))
    for k, (name, title) in enumerate(names.items()):
        flow = found[name]["flow"]
        values = flow.vorticity(found[name]["W"], 144)
        size = float(np.quantile(np.abs(values), 0.998))
        image = globe(fig, grid[0, 4 * k : 4 * k + 4], flow, values, title, size)
        fig.colorbar(image, ax=fig.axes[-1], shrink=0.6, location="bottom", label="ω")
    one = found["rotating"]
    latitude = np.degrees(one["flow"].surface.grid(found["n"])[0])
    axes = [fig.add_subplot(grid[1, 3 * k : 3 * k + 3]) for k in range(4)]
    size = float(np.abs(one["zonal"]).max())
    image = axes[0].pcolormesh(
        one["t"], latitude, one["zonal"].T, cmap="RdBu_r", vmin=-size, vmax=size, rasterized=True
    )
    fig.colorbar(image, ax=axes[0], location="bottom", shrink=0.9, label="zonal mean of u, with rotation")
    axes[0].set(xlabel="time", ylabel="latitude", yticks=range(-90, 91, 30))
    last = found["n"] - 1
    l = np.arange(1, last)
    for name, title in names.items():
        axes[1].plot(profile(found[name]), latitude, label=title)
        axes[2].loglog(l, late(found[name]["spectrum"]).mean(axis=0)[1:last], label=title)
        axes[3].plot(found[name]["t"] + (one["t"][-1] if name == "salt" else 0.0), found[name]["energy"], label=title)
    axes[1].axvline(0.0, color="#888888", linewidth=0.6)
    axes[1].set(xlabel="mean zonal velocity", yticks=range(-90, 91, 30))
    axes[2].axvspan(
        FORCED[0] * found["n"] // 129, FORCED[1] * found["n"] // 129, color="#888888", alpha=0.3, linewidth=0
    )
    axes[2].set(xlabel="degree l", ylim=(1e-9, None))
    axes[2].set_title("mean energy E(l); grey: stirring", fontsize=9)
    axes[3].axhline(found["rate"] / (2 * found["drag"]), color="#888888", linewidth=0.8, linestyle=":")
    axes[3].set(xlabel="time", ylim=(0, None))
    axes[3].set_title("energy; dotted: all loss by drag", fontsize=9)
    axes[2].legend(fontsize=7, loc="lower left")
    return fig


if __name__ == "__main__":
    done = turbulence()
    Path("forced_turbulence.json").write_text(json.dumps(numbers(done), indent=1, ensure_ascii=False), encoding="utf-8")
    draw(done).savefig("forced_turbulence.png", dpi=110)
