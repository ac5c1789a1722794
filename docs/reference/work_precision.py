"""Draw work_precision.png: the error of every method against its processor time (`make docs` does not run this).

Errors are those of `cj.convergence`, at the end of shared paths; times those of an ensemble, a path at a time, with its
random numbers, without compilation and the cost of a call. Some minutes; with the name of a JSON file the measurements
are kept in it, or taken from it if it is there.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

PATHS = 256
MEMBERS = 1024  # of the ensembles that are timed
ALL = cj.integrators.ALL
TOP = {"inertia": (4, 2, 1), "pi0": (-0.5, 0.7, 0.4), "gamma0": (-0.6, 0.6, 0.5)}
NOISES = {
    "one": [0.5, -0.6, 0.4],
    "three": 0.7 * np.eye(3),
}
PROBLEMS = {
    "rigid body, no noise": (cj.models.rigid_body(alpha=None, pi0=(0.6, -0.7, 0.9)), 2.0 ** -np.arange(1, 8)),
    "heavy top, one noise": (cj.models.heavy_top(**TOP, alpha=NOISES["one"]), 2.0 ** -np.arange(3, 9)),
    "heavy top, three noises": (cj.models.heavy_top(**TOP, alpha=NOISES["three"]), 2.0 ** -np.arange(3, 9)),
}
T1 = {"rigid body, no noise": 8.0}

# Families, by colour; in a family the marks tell.
FAMILIES = {
    "#0072B2": ["TMK", "TMKLevy", "TMK15"],
    "#D55E00": ['RKMK("euler")', 'RKMK("midpoint")', 'RKMK("heun")', 'RKMK("rk4")'],
    "#8A6D00": ['RKMK("gauss2")', 'RKMK("gauss4")'],
    "#009E73": ["LieMidpoint", "IsospectralMidpoint", "LieTrotter", "Strang"],
    "#CC79A7": ['DiscreteGradient("gonzalez")', 'DiscreteGradient("average")'],
    "#56B4E9": ["CommutatorFree(3)", "CommutatorFree(4)"],
    "#888888": ["ImplicitMidpoint", "Trapezoidal", "Heun"],
}
# HeunMK and EulerMaruyamaMK are RKMK("heun") and RKMK("euler") here, where the noise is SALT.


def measure() -> dict:
    """Errors and seconds a path, by problem and method."""
    out = {}
    for problem, ((system, mu0), dts) in PROBLEMS.items():
        methods = {n: ALL[n] for names in FAMILIES.values() for n in names if fits(ALL[n], system)}
        t1 = T1.get(problem, 1.0)
        study = cj.convergence(system, mu0, methods, dts, PATHS, key=1, t1=t1)
        print(problem, study, sep="\n", flush=True)
        seconds = {n: [timed(system, mu0, i, float(dt), t1) for dt in dts] for n, i in methods.items()}
        out[problem] = {n: [dts.tolist(), study.rms[k].tolist(), seconds[n]] for k, n in enumerate(methods)}
    return out


def fits(integrator: cj.Integrator, system: cj.System) -> bool:
    """Whether the method takes the system."""
    try:
        integrator.check(system)
    except (TypeError, ValueError):
        return False
    return True


def timed(system: cj.System, mu0: np.ndarray, integrator: cj.Integrator, dt: float, t1: float) -> float:
    """Processor seconds a path: what a step adds to a run, times the steps, so that the cost of a call is left out."""

    def seconds(steps: int) -> float:
        began = time.process_time()
        run = {"members": MEMBERS, "t1": steps * dt, "dt": dt, "key": 0 if system.n_noise else None}
        cj.ensemble(system, mu0, integrator=integrator, save_every=steps, throw=False, **run)
        return time.process_time() - began

    few = 32
    seconds(few)  # compiles
    short = min(seconds(few) for _ in range(3))
    if short > 0.2:
        return short / few / MEMBERS * round(t1 / dt)
    many = few + max(4 * few, min(round(8 * t1 / dt), 2048))
    step = (min(seconds(many) for _ in range(3)) - short) / (many - few)
    return step / MEMBERS * round(t1 / dt)


def draw(data: dict, path: Path) -> None:
    """A panel a problem, a line a method."""
    with plotting.style():
        fig = plotting.figure(plotting.PAGE, 3.9)
        axes = fig.subplots(1, len(data))
        for ax, (problem, methods) in zip(axes, data.items(), strict=True):
            for colour, names in FAMILIES.items():
                for mark, name in zip("osD^", names, strict=False):
                    if name in methods:
                        _, errors, seconds = methods[name]
                        grey = colour == "#888888"
                        style = {"color": colour, "marker": mark, "markersize": 3.2, "zorder": 1 if grey else 2}
                        style["markerfacecolor"] = "white" if mark in "sD" else colour
                        ax.loglog(np.array(seconds) * 1e6, errors, ":" if grey else "-", label=name, **style)
            ax.set(title=problem, xlabel="processor time per path, µs")
        axes[0].set_ylabel("error at the end (rms over paths)")
        handles = {label: h for ax in axes for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        order = [n for names in FAMILIES.values() for n in names]
        fig.legend([handles[n] for n in order], order, loc="outside lower center", ncols=4)
        fig.savefig(path, dpi=200)


if __name__ == "__main__":
    kept = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if kept is not None and kept.exists():
        data = json.loads(kept.read_text())
    else:
        data = measure()
        if kept is not None:
            kept.write_text(json.dumps(data))
    draw(data, Path(__file__).with_suffix(".png"))
