"""Three flows: decaying turbulence with and without noise, a Rossby–Haurwitz wave, magnetic relaxation (MHD).

    python examples/fluids.py                 # n = 129 (MHD 65): some minutes; writes a figure and numbers for each
    python examples/fluids.py turbulence      # one of the three

Every run conserves all of its Casimirs to round-off: the eigenvalues of W, for MHD those of Θ and Tr(WΘᵏ).
"""  # fmt: skip

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import coadjoint as cj

METHOD = cj.IsospectralMidpoint(tol=1e-12)
SQUARE = (0, 2 * np.pi, 0, 2 * np.pi)


def turbulence(n: int = 129, t1: float = 16.0, members: int = 8, amplitude: float = 0.02) -> dict[str, Any]:
    """Decay on the sphere from a random field with its peak at degree 4: alone, and as an ensemble under SALT noise.

    Enstrophy moves to small scales while energy stays at large ones. Noise makes the members diverge. All members stay
    on the orbit of the initial state, so they have the same vorticity at different places.
    """
    sphere = cj.fluids.Sphere(n)
    omega = cj.fluids.random_field(sphere, key=1, peak=min(4, n // 4), slope=5.0)
    quiet, W0 = cj.models.euler_sphere(n, omega=omega)
    noisy, _ = cj.models.euler_sphere(n, omega=omega, noise_shells=(1, 3), amplitude=amplitude)
    flow, times = (
        cj.fluids.of(quiet),
        {"t1": t1, "dt": 0.05, "save_every": round(t1 / 0.05) // 20, "integrator": METHOD},
    )
    alone = cj.solve(quiet, W0, **times)
    many = cj.ensemble(noisy, W0, members=members, key=0, **times)
    fields = np.array([[flow.vorticity(W, n) for W in member] for member in many.mu])
    area = np.cos(flow.surface.grid(n)[0])[:, None] / np.cos(flow.surface.grid(n)[0]).sum() / (2 * n)
    spread = np.sqrt(np.sum(fields.var(axis=0) * area, axis=(1, 2)) / np.sum(fields[0, 0] ** 2 * area))
    changes = np.vstack([alone.orbit_error(), many.orbit_error()])
    start, end = (unresolved(flow, W) for W in (alone.mu[0], alone.mu[-1]))
    return {
        "flow": flow,
        "alone": alone,
        "many": many,
        "spread by place": fields[:, -1].std(axis=0),
        "spread by time": spread,
        "orbit errors": changes,
        "unresolved": end,
        "error of the tendency at the start, l up to 10": float(start[min(10, n - 1)]),
        "error of the tendency at the end, l up to 10": float(end[min(10, n - 1)]),
        "error of the tendency at the end, l up to 20": float(end[min(20, n - 1)]),
        "energy error": abs(float(flow.energy(alone.mu[-1]) / flow.energy(W0)) - 1),
        "orbit error": float(changes.max()),
        "spread": float(spread[-1]),
        "slope": slope(np.asarray(flow.spectrum(alone.mu[-1])), n // 8, n // 3),
    }


def unresolved(flow: Any, W: Any) -> np.ndarray:
    """The relative difference of dω/dt from −u·∇ω of Euler's equation on all degrees up to l, for each l.

    Quadrature on a grid of twice the resolution makes −u·∇ω exact.
    """
    surface = flow.surface
    n, fine = surface.n, cj.fluids.Sphere(2 * surface.n)
    omega = np.append(flow.vorticity_coefficients(W), np.zeros(3 * n * n))
    degrees = np.asarray(fine.shells)
    psi = -omega / np.where(degrees > 0, degrees * (degrees + 1), np.inf)
    latitudes = np.asarray(fine.gauss_grid()[0])
    (psi_n, psi_e), (omega_n, omega_e) = (fine.gradient(c, latitudes) for c in (psi, omega))
    exact = np.asarray(fine.from_values(psi_n * omega_e - psi_e * omega_n))[: n * n]
    P = np.asarray(flow.stream(W))
    found = np.asarray(surface.coefficients(P @ W - W @ P))
    sums = [np.bincount(degrees[: n * n], x**2).cumsum() for x in (found - exact, exact)]
    return np.sqrt(sums[0] / np.maximum(sums[1], 1e-300))


def slope(E: np.ndarray, first: int, last: int) -> float:
    """The slope of E(k) on doubly logarithmic axes, fitted to first ≤ k ≤ last."""
    k = np.arange(first, last + 1)
    return float(np.polyfit(np.log(k), np.log(E[first : last + 1]), 1)[0])


def rossby_haurwitz(n: int = 129, t1: float = 10.0, amplitude: float = 0.006) -> dict[str, Any]:
    """A wave of degree 4 on solid-body rotation a, on a sphere that rotates with Ω. Its rate is a − 2(a + Ω)/20.

    The matrices have this solution exactly for every n. Under SALT noise the wave wanders and breaks.
    """
    a, Omega, l, m = 0.3, 1.0, 4, 3
    omega = np.zeros(n * n)
    omega[cj.fluids.index(1, 0)] = 2 * a * np.sqrt(4 * np.pi / 3)
    omega[cj.fluids.index(l, m)] = 1.0
    times = {"t1": t1, "dt": 0.02, "save_every": round(t1 / 0.02) // 20}
    quiet, W0 = cj.models.euler_sphere(n, rotation=Omega, omega=omega)
    noisy, _ = cj.models.euler_sphere(n, rotation=Omega, omega=omega, noise_shells=(2, 5), amplitude=amplitude)
    sol = cj.solve(quiet, W0, **times)
    shaken = cj.solve(noisy, W0, key=0, **times)
    changes = np.vstack([sol.orbit_error(), shaken.orbit_error()])
    flow = cj.fluids.of(quiet)
    c = np.array([flow.vorticity_coefficients(W) for W in sol.mu])
    turned = np.unwrap(np.arctan2(c[:, cj.fluids.index(l, -m)], c[:, cj.fluids.index(l, m)])) / m
    expected = sol.t * (a - 2 * (a + Omega) / (l * (l + 1)))
    return {
        "flow": flow,
        "run": sol,
        "shaken": shaken,
        "turned": turned,
        "expected": expected,
        "angle error": float(np.abs(turned - expected).max()),
        "orbit errors": changes,
        "orbit error": float(changes.max()),
    }


def mhd_relaxation(n: int = 65, t1: float = 2.0) -> dict[str, Any]:
    """A random magnetic field in a fluid at rest. Field lines do not reconnect, and magnetic energy becomes motion."""
    torus = cj.fluids.Torus(n)
    potential = cj.fluids.random_field(torus, key=2, peak=3, slope=12.0, rms=0.5)
    system, start = cj.models.mhd(n, omega=0 * potential, potential=potential)
    steps = 20 * int(np.ceil(t1 * n / 6))  # Alfvén waves of the shortest length set the step
    sol = cj.solve(system, start, t1=t1, dt=t1 / steps, save_every=steps // 20, integrator=METHOD)
    flow = cj.fluids.of(system)
    data = flow.to_xarray(sol)
    total = np.asarray(data["energy"] + data["advected_energy"])
    return {
        "flow": flow,
        "run": sol,
        "data": data,
        "given to motion": float((data["energy"] / total[0]).max()),
        "energy error": float(np.abs(total / total[0] - 1).max()),
        "orbit error": float(sol.orbit_error().max()),
    }


def picture(ax: Any, values: np.ndarray, title: str, size: float = 0.0, cmap: str = "RdBu_r") -> Any:
    """A field on the torus."""
    size = size or float(np.abs(values).max())
    low = -size if cmap == "RdBu_r" else 0
    image = ax.imshow(values.T, origin="lower", extent=SQUARE, cmap=cmap, vmin=low, vmax=size, interpolation="bilinear")
    ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
    ax.set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
    ax.set_title(title, fontsize=9)
    return image


def errors(ax: Any, t: np.ndarray, values: np.ndarray) -> None:
    """Errors of all Casimirs along time."""
    ax.semilogy(t[1:], np.maximum(values, 1e-17).T[1:], linewidth=0.9)
    ax.axhline(2.0**-52, color="black", linestyle=":", linewidth=0.8)
    ax.annotate("$2^{-52}$", (0.98, 2.0**-52), xycoords=("axes fraction", "data"), va="bottom", ha="right", fontsize=8)
    ax.set(xlabel="time", ylim=(1e-17, 1e-12), xlim=(0, t[-1]))
    ax.set_title("change of eigenvalues / ‖W‖", fontsize=9)


def globe(fig: Any, at: Any, flow: Any, values: np.ndarray, title: str, size: float = 0.0, cmap: str = "RdBu_r") -> Any:
    """A field on a Mollweide map."""
    size = size or float(np.abs(values).max())
    latitude, longitude = flow.surface.grid(len(values))
    ax = fig.add_subplot(at, projection="mollweide")
    edge = np.append(longitude, 2 * np.pi) - np.pi
    values = np.concatenate([values, values[:, :1]], axis=1)
    image = ax.pcolormesh(
        edge, latitude, values, cmap=cmap, vmin=-size if cmap == "RdBu_r" else 0, vmax=size, rasterized=True
    )
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=9)
    return image


def draw_turbulence(found: dict[str, Any]) -> Any:
    """Vorticity alone and with noise, the spread of the members, spectra, resolution, energies and Casimirs."""
    from matplotlib.figure import Figure

    flow, alone, many = (found[k] for k in ("flow", "alone", "many"))
    fig = Figure(figsize=(10, 5.2), layout="constrained")
    grid = fig.add_gridspec(2, 4, height_ratios=(1, 1.2))
    fields = [flow.vorticity(W, 144) for W in (alone.mu[0], alone.mu[-1], many.mu[0, -1])]
    size = float(np.quantile(np.abs(fields[0]), 0.999))
    titles = ("vorticity at the start", f"alone, t = {alone.t[-1]:g}", f"with SALT noise, t = {alone.t[-1]:g}")
    for k in range(3):
        image = globe(fig, grid[0, k], flow, fields[k], titles[k], size)
    wide = globe(fig, grid[0, 3], flow, found["spread by place"], f"spread of {len(many.mu)} members", cmap="magma")
    fig.colorbar(image, ax=fig.axes[:3], shrink=0.5, location="bottom", label="ω")
    fig.colorbar(wide, ax=fig.axes[3], shrink=0.8, location="bottom", label="standard deviation")
    axes = [fig.add_subplot(grid[1, k]) for k in range(4)]
    last = flow.surface.n - 1
    l = np.arange(1, last)
    for name, W in (("start", alone.mu[0]), ("alone", alone.mu[-1]), ("with noise", many.mu[0, -1])):
        axes[0].loglog(l, np.asarray(flow.spectrum(W))[1:last], label=name)
    axes[0].set(xlabel="degree l", ylim=(1e-9, None))
    axes[0].set_title("energy E(l)", fontsize=9)
    axes[0].legend(fontsize=7)
    axes[1].loglog(l, found["unresolved"][1:last])
    axes[1].set(xlabel="degrees up to l")
    axes[1].set_title("error of dω/dt at the end", fontsize=9)
    axes[2].semilogy(many.t[1:], found["spread by time"][1:])
    axes[2].set(xlabel="time", ylim=(None, 2))
    axes[2].set_title("spread / rms vorticity", fontsize=9)
    errors(axes[3], many.t, found["orbit errors"])
    return fig


def draw_rossby_haurwitz(found: dict[str, Any]) -> Any:
    """The wave on maps of Mollweide, alone and with noise, and its angle beside the exact one."""
    from matplotlib.figure import Figure

    flow, run, shaken = (found[k] for k in ("flow", "run", "shaken"))
    fig = Figure(figsize=(10, 5.2), layout="constrained")
    grid = fig.add_gridspec(2, 4, width_ratios=(1, 1, 1, 0.9))
    latitude, longitude = flow.surface.grid(144)
    edge = np.append(longitude, 2 * np.pi) - np.pi
    size = float(np.abs(flow.vorticity(run.mu[0], 144)).max())
    image = None
    for row, sol in enumerate((run, shaken)):
        for column, i in enumerate((0, len(sol.t) // 2, len(sol.t) - 1)):
            ax = fig.add_subplot(grid[row, column], projection="mollweide")
            values = flow.vorticity(sol.mu[i], 144)
            values = np.concatenate([values, values[:, :1]], axis=1)
            image = ax.pcolormesh(edge, latitude, values, cmap="RdBu_r", vmin=-size, vmax=size, rasterized=True)
            ax.set(xticks=[], yticks=[])
            ax.set_title(f"{'with SALT noise' if row else 'alone'}, t = {sol.t[i]:g}", fontsize=9)
    fig.colorbar(image, ax=fig.axes, shrink=0.6, label="ω", location="bottom", aspect=50)
    ax = fig.add_subplot(grid[0, 3])
    ax.plot(run.t, found["expected"], color="black", linewidth=3, alpha=0.25, label="exact: t (a − 2(a + Ω)/20)")
    ax.plot(run.t, found["turned"], "o", markersize=3, label="the matrices")
    ax.set(xlabel="time")
    ax.set_title("angle of the wave", fontsize=9)
    ax.legend(fontsize=7)
    errors(fig.add_subplot(grid[1, 3]), run.t, found["orbit errors"])
    return fig


def draw_mhd_relaxation(found: dict[str, Any]) -> Any:
    """Lines of the magnetic field on its current, the motion that it starts, and the energies."""
    from matplotlib.figure import Figure

    flow, sol, data = (found[k] for k in ("flow", "run", "data"))
    fig = Figure(figsize=(10, 5.2), layout="constrained")
    axes = fig.subplots(2, 4)
    at = (0, len(sol.t) // 2, len(sol.t) - 1)
    current = [flow.surface.values(flow.pictures(sol.mu[i])["current $-\\Delta a$"], 256) for i in at]
    vorticity = [flow.vorticity(sol.mu[i], 256) for i in at]
    x = np.linspace(0, 2 * np.pi, 256, endpoint=False)
    levels = np.linspace(-1, 1, 13) * float(np.abs(flow.advected_field(sol.mu[0], 256)).max())
    for column, i in enumerate(at):
        size = float(np.quantile(np.abs(current), 0.998))
        first = picture(axes[0, column], current[column], f"current and field lines, t = {sol.t[i]:g}", size)
        a = flow.advected_field(sol.mu[i], 256)
        axes[0, column].contour(x, x, a.T, levels=levels, colors="black", linewidths=0.4, linestyles="solid")
        second = picture(axes[1, column], vorticity[column], "vorticity", float(np.quantile(np.abs(vorticity), 0.998)))
    fig.colorbar(first, ax=axes[0, :3], shrink=0.8, label="−Δa")
    fig.colorbar(second, ax=axes[1, :3], shrink=0.8, label="ω")
    for name, label in (("advected_energy", "magnetic"), ("energy", "of motion")):
        axes[0, 3].plot(sol.t, data[name], label=label)
    axes[0, 3].plot(sol.t, data["energy"] + data["advected_energy"], color="black", linewidth=0.8, label="both")
    axes[0, 3].set(xlabel="time", ylim=(0, None))
    axes[0, 3].set_title("energy", fontsize=9)
    axes[0, 3].legend(fontsize=7)
    errors(axes[1, 3], sol.t, np.asarray(sol.orbit_error())[None])
    axes[1, 3].set_title("error of the Casimirs", fontsize=9)
    return fig


DRAW = {"turbulence": draw_turbulence, "rossby_haurwitz": draw_rossby_haurwitz, "mhd_relaxation": draw_mhd_relaxation}

if __name__ == "__main__":
    for name in sys.argv[1:] or DRAW:
        found = globals()[name]()
        numbers = {k: v for k, v in found.items() if isinstance(v, float)}
        print(name + ": " + ", ".join(f"{k} {v:.2g}" for k, v in numbers.items()), flush=True)
        DRAW[name](found).savefig(f"{name}.png", dpi=110)
        Path(f"{name}.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
