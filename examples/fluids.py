"""Three flows on their true orbits: decaying turbulence with and without noise, a Rossby–Haurwitz wave, MHD relaxation.

    python examples/fluids.py            # the numbers, and fluids.png; minutes at n = 129

Every run keeps all of its Casimirs to round-off: the eigenvalues of W, for MHD those of Θ and Tr(WΘᵏ).
"""  # fmt: skip

from typing import Any

import numpy as np

import coadjoint as cj

METHOD = cj.IsospectralMidpoint(tol=1e-12)


def turbulence(n: int = 129, t1: float = 20.0, members: int = 4, amplitude: float = 0.02) -> dict[str, Any]:
    """Decay from a random field of wavenumbers about 6: alone, and as an ensemble under SALT noise of the same start.

    Enstrophy goes to small scales while energy stays at large ones; noise makes the members part, yet none of them
    leaves the orbit, so that all have the same vorticity, only elsewhere.
    """
    torus = cj.fluids.Torus(n)
    omega = cj.fluids.random_field(torus, key=1, peak=min(6, n // 4), slope=5.0)
    quiet, W0 = cj.models.sine_euler(n, omega=omega, orientation="physical", noise_modes=None)
    noisy, _ = cj.models.sine_euler(n, omega=omega, orientation="physical", noise_shells=(1, 3), amplitude=amplitude)
    flow, times = cj.fluids.of(quiet), {"t1": t1, "dt": 0.05, "save_every": round(t1 / 0.05) // 4}
    alone = cj.solve(quiet, W0, integrator=METHOD, **times)
    many = [cj.solve(noisy, W0, key=k, integrator=METHOD, **times) for k in range(members)]
    fields = np.array([flow.vorticity(sol.mu[-1], max(128, n)) for sol in many])
    return {
        "flow": flow,
        "alone": alone,
        "member": many[0],
        "energy error": abs(float(flow.energy(alone.mu[-1]) / flow.energy(W0)) - 1),
        "orbit error": max(float(sol.orbit_error().max()) for sol in (alone, *many)),
        "spread": float(np.sqrt(np.mean(fields.var(axis=0))) / fields.std()),
        "slope": slope(np.asarray(flow.spectrum(alone.mu[-1])), n // 8, n // 3),
    }


def slope(E: np.ndarray, first: int, last: int) -> float:
    """Of E(k) on doubly logarithmic axes, fitted to first ≤ k ≤ last."""
    k = np.arange(first, last + 1)
    return float(np.polyfit(np.log(k), np.log(E[first : last + 1]), 1)[0])


def rossby_haurwitz(n: int = 33, t1: float = 5.0) -> dict[str, Any]:
    """A wave of degree 4 on solid rotation a, seen from a sphere that rotates with Ω: it turns at a − 2(a + Ω)/20."""
    a, Omega, l, m = 0.3, 1.0, 4, 3
    omega = np.zeros(n * n)
    omega[cj.fluids.index(1, 0)] = 2 * a * np.sqrt(4 * np.pi / 3)
    omega[cj.fluids.index(l, m)] = 1.0
    system, W0 = cj.models.euler_sphere(n, rotation=Omega, omega=omega)
    sol = cj.solve(system, W0, t1=t1, dt=0.02, save_every=round(t1 / 0.02) // 2)
    flow = cj.fluids.of(system)
    c = np.asarray(flow.vorticity_coefficients(sol.mu[-1]))
    turned = np.arctan2(c[cj.fluids.index(l, -m)], c[cj.fluids.index(l, m)]) / m
    expected = t1 * (a - 2 * (a + Omega) / (l * (l + 1)))
    left = np.angle(np.exp(1j * m * (turned - expected))) / m
    return {"flow": flow, "run": sol, "angle error": abs(float(left)), "orbit error": float(sol.orbit_error().max())}


def mhd_relaxation(n: int = 65, t1: float = 10.0) -> dict[str, Any]:
    """A random magnetic field in a fluid at rest: no line breaks, and magnetic energy becomes motion."""
    torus = cj.fluids.Torus(n)
    potential = cj.fluids.random_field(torus, key=2, peak=3, slope=6.0, rms=0.5)
    system, start = cj.models.mhd(n, omega=0 * potential, potential=potential)
    steps = 10 * int(np.ceil(t1 * n / 3))  # Alfvén waves of the shortest length set the step
    sol = cj.solve(system, start, t1=t1, dt=t1 / steps, save_every=steps // 10, integrator=METHOD)
    flow = cj.fluids.of(system)
    data = flow.to_xarray(sol)
    total = np.asarray(data["energy"] + data["carried_energy"])
    return {
        "flow": flow,
        "run": sol,
        "given to motion": float(data["energy"][-1] / total[0]),
        "energy error": float(np.abs(total / total[0] - 1).max()),
        "orbit error": float(sol.orbit_error().max()),
    }


def figure(found: dict[str, dict[str, Any]], path: str) -> None:
    """What the three runs look like, and the spectrum of the first."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(7.0, 7.2), layout="constrained")
    axes = fig.subplots(2, 2)
    decay, wave, magnetic = (found[k] for k in ("turbulence", "rossby_haurwitz", "mhd_relaxation"))
    square = (0, 2 * np.pi, 0, 2 * np.pi)
    pictures = [
        ("turbulence, alone", decay["flow"].vorticity(decay["alone"].mu[-1], 256).T, square),
        ("Rossby–Haurwitz wave", wave["flow"].vorticity(wave["run"].mu[-1], 128)[::-1], (0, 360, -90, 90)),
        ("MHD: magnetic potential", magnetic["flow"].carried(magnetic["run"].mu[-1], 256).T, square),
    ]
    for ax, (title, picture, extent) in zip(axes.flat, pictures, strict=False):
        size = np.abs(picture).max()
        ax.imshow(picture, origin="lower", extent=extent, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto")
        ax.set_title(title)
    ax = axes.flat[3]
    for name, sol in (("start", None), ("alone", decay["alone"]), ("with noise", decay["member"])):
        W = decay["alone"].mu[0] if sol is None else sol.mu[-1]
        E = np.asarray(decay["flow"].spectrum(W))[1 : decay["flow"].surface.n // 2]
        ax.loglog(np.arange(1, len(E) + 1), E, label=name)
    k = np.array([8.0, 40.0])
    ax.loglog(k, 2 * E[7] * (k / k[0]) ** -3, ":", color="#888888", label="$k^{-3}$")
    ax.set(xlabel="wavenumber $k$", ylabel="$E(k)$", title="turbulence: energy by wavenumber", ylim=(1e-9, None))
    ax.legend()
    fig.savefig(path, dpi=200)


if __name__ == "__main__":
    results = {"turbulence": turbulence(), "rossby_haurwitz": rossby_haurwitz(), "mhd_relaxation": mhd_relaxation()}
    for name, values in results.items():
        print(name + ": " + ", ".join(f"{k} {v:.2g}" for k, v in values.items() if isinstance(v, float)))
    figure(results, "fluids.png")
