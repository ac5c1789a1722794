"""The stochastic heavy top in other hands: C, numba, diffrax, torchsde, each as its users would write it.

dπ = (π×ω + χ×γ) dt + π×α ∘ dW,  dγ = γ×ω dt + γ×α ∘ dW,  ω = I⁻¹π, one trajectory or an ensemble.

Every contender has `one(mu0, dW, dt)`, the end of the trajectory along prescribed increments.
`many(mu0, members, steps, dt)` returns the ends of an ensemble with its own random numbers. All except C have
`random(mu0, steps, dt)`, the same for one trajectory.
C and numba use TMK; diffrax and torchsde their fastest fixed-step Stratonovich method, none of which keeps a Casimir.
"""

import ctypes
import subprocess
from pathlib import Path

import numpy as np

INERTIA, CHI, ALPHA = np.array([4.0, 2.0, 1.0]), np.array([0.0, 0.0, 1.0]), np.array([0.01, 0.02, 0.03])


class C:
    """Hand-written C for this one system, trajectories side by side in vectors for ensembles (benchmarks/c).

    Its tolerance is that of TMK(); if `loose`, about a hundred times as large.
    """

    name = "C"

    def __init__(self, loose: bool = False):
        self.library = built("heavy_top", *(["-DLOOSE"] if loose else []))
        self.version = subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]

    def one(self, mu0: np.ndarray, dW: np.ndarray, dt: float) -> np.ndarray:
        """One trajectory."""
        mu = mu0.copy()
        self.library.heavy_top(_pointer(mu), _pointer(dW), ctypes.c_int64(len(dW)), ctypes.c_double(dt))
        return mu

    def many(self, mu0: np.ndarray, members: int, steps: int, dt: float) -> np.ndarray:
        """An ensemble."""
        out = np.empty((members, 6))
        counts = ctypes.c_int64(members), ctypes.c_int64(steps)
        self.library.heavy_top_ensemble(_pointer(mu0), _pointer(out), *counts, ctypes.c_double(dt), ctypes.c_uint64(1))
        return out


def built(name: str, *options: str) -> ctypes.CDLL:
    """A program of benchmarks/c, compiled by the system's compiler."""
    here = Path(__file__).parent / "c"
    library = here / "build" / f"{name}{''.join(options)}.so"
    library.parent.mkdir(exist_ok=True)
    # The vectors are written by hand; what the compiler makes of the rest has a longer way to the next step.
    flags = ["-O3", "-march=native", "-fno-math-errno", "-fno-tree-vectorize", "-shared", "-fPIC", *options]
    subprocess.run(["cc", *flags, "-o", library, here / f"{name}.c", "-lm"], check=True)
    return ctypes.CDLL(str(library))


class Pendulum:
    """A pendulum-like Hamiltonian on so(3)* with sin and cos, by TMK: C with the library's own polynomials."""

    inertia, beta, a, b = np.array([4.0, 2.0, 1.0]), np.array([0.01, 0.02, 0.03]), 1.0, 0.5

    def __init__(self):
        self.library = built("pendulum")

    def one(self, mu0: np.ndarray, dW: np.ndarray, dt: float) -> np.ndarray:
        """One trajectory, in all lanes at once."""
        mu = mu0.copy()
        self.library.pendulum(_pointer(mu), _pointer(dW), ctypes.c_int64(len(dW)), ctypes.c_double(dt))
        return mu

    def many(self, mu0: np.ndarray, members: int, steps: int, dt: float) -> np.ndarray:
        """An ensemble."""
        out = np.empty((members, 3))
        counts = ctypes.c_int64(members), ctypes.c_int64(steps)
        self.library.pendulum_ensemble(_pointer(mu0), _pointer(out), *counts, ctypes.c_double(dt), ctypes.c_uint64(1))
        return out


def _pointer(a: np.ndarray) -> ctypes.c_void_p:
    return a.ctypes.data_as(ctypes.c_void_p)


class Numba:
    """TMK with NumPy arrays and `numpy.linalg.solve`, compiled by numba."""

    name = "numba"

    def __init__(self):
        import numba

        self.version = numba.__version__
        jit = numba.njit(fastmath=False)

        @jit
        def cross(a, b):
            return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])

        @jit
        def flow(w, v, p, g):
            """exp(ad*_(w, v)) (p, g) by Rodrigues' formula and its derivative."""
            x = w @ w
            theta = np.sqrt(x)
            if theta > 1e-2:
                a, b = np.sin(theta) / theta, (1 - np.cos(theta)) / x
                da, db = (np.cos(theta) - a) / (2 * x), (a - 2 * b) / (2 * x)
            else:
                a, b = 1 - x / 6 * (1 - x / 20), 0.5 - x / 24 * (1 - x / 30)
                da, db = -1 / 6 + x / 60, -1 / 24 + x / 360
            gw, pw, gv = cross(g, w), cross(p, w), cross(g, v)
            gww, dx = cross(gw, w), 2 * (w @ v)
            p1 = p + a * (pw + gv) + b * (cross(pw, w) + cross(gv, w) + cross(gw, v)) + dx * (da * gw + db * gww)
            return p1, g + a * gw + b * gww

        @jit
        def step(p, g, dW, dt):
            k, v = 0.5 * dt / INERTIA, -CHI * dt
            J = np.eye(3)
            J[0, 1], J[0, 2], J[1, 0] = k[0] * p[2], -k[0] * p[1], -k[1] * p[2]
            J[1, 2], J[2, 0], J[2, 1] = k[1] * p[0], k[2] * p[1], -k[2] * p[0]
            w = np.zeros(3)
            for _ in range(20):
                p1, _ = flow(w, v, p, g)
                d = np.linalg.solve(J, (p + p1) * k + ALPHA * dW - w)
                w = w + d
                if d @ d <= 1e-26 * (w @ w):
                    break
            return flow(w, v, p, g)

        @jit
        def one(mu, dW, dt):
            p, g = mu[:3].copy(), mu[3:].copy()
            for x in dW:
                p, g = step(p, g, x, dt)
            return np.concatenate((p, g))

        @jit
        def many(mu, members, steps, dt):
            out = np.empty((members, 6))
            for m in range(members):
                out[m] = one(mu, np.sqrt(dt) * np.random.standard_normal(steps), dt)
            return out

        self.one, self.many = one, many

    def random(self, mu0: np.ndarray, steps: int, dt: float) -> np.ndarray:
        """One trajectory, random numbers included."""
        return self.many(mu0, 1, steps, dt)[0]


class Diffrax:
    """`diffeqsolve` with its Stratonovich Heun method, the fastest of its applicable solvers here.

    With the settings of its documentation (a virtual Brownian tree, the adjoint it uses by default), or with those that
    are fastest (increments that are not remembered, no adjoint).
    """

    def __init__(self, fastest: bool = True):
        self.name = "diffrax" if fastest else "diffrax, as documented"
        import diffrax
        import jax
        import jax.numpy as jnp

        self.version = diffrax.__version__
        self._jnp = jnp
        inertia, chi, alpha = jnp.asarray(INERTIA), jnp.asarray(CHI), jnp.asarray(ALPHA)

        def drift(t, mu, args):
            p, g = mu[:3], mu[3:]
            w = p / inertia
            return jnp.concatenate([jnp.cross(p, w) + jnp.cross(chi, g), jnp.cross(g, w)])

        def diffusion(t, mu, args):
            return jnp.concatenate([jnp.cross(mu[:3], alpha), jnp.cross(mu[3:], alpha)])

        class Given(diffrax.AbstractPath):
            """A path that was given on the grid."""

            W: jax.Array
            dt: jax.Array
            t0 = 0.0
            t1 = 1e30

            def evaluate(self, t0, t1=None, left=True, use_levy=False):
                at = lambda t: self.W[jnp.round(t / self.dt).astype(int)]
                return at(t0) if t1 is None else at(t1) - at(t0)

        def run(mu0, path, t1, dt, steps):
            terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, path))
            return diffrax.diffeqsolve(
                terms,
                diffrax.Heun(),
                t0=0.0,
                t1=t1,
                dt0=dt,
                y0=mu0,
                saveat=diffrax.SaveAt(t1=True),
                adjoint=diffrax.DirectAdjoint() if fastest else diffrax.RecursiveCheckpointAdjoint(),
                max_steps=steps + 8,
            ).ys[0]

        @jax.jit
        def one(mu0, W, dt):
            steps = W.shape[0] - 1
            return run(mu0, Given(W, dt), steps * dt, dt, steps)

        def many(mu0, keys, dt, steps, whole=None):
            def member(key):
                if fastest:
                    path = diffrax.UnsafeBrownianPath(shape=(), key=key, levy_area=diffrax.BrownianIncrement)
                else:
                    path = diffrax.VirtualBrownianTree(0.0, (whole or steps) * dt, tol=dt / 2, shape=(), key=key)
                return run(mu0, path, steps * dt, dt, steps)

            return jax.vmap(member)(keys) if keys.ndim else member(keys)

        self._one = one
        self._many = jax.jit(many, static_argnums=(3, 4))
        self._keys = lambda members: jax.random.split(jax.random.key(1), members)

    def one(self, mu0: np.ndarray, dW: np.ndarray, dt: float) -> np.ndarray:
        """One trajectory."""
        W = np.concatenate([[0.0], np.cumsum(dW)])
        return np.asarray(self._one(self._jnp.asarray(mu0), self._jnp.asarray(W), dt))

    def random(self, mu0: np.ndarray, steps: int, dt: float) -> np.ndarray:
        """One trajectory, random numbers included."""
        return np.asarray(self._many(self._jnp.asarray(mu0), self._keys(1)[0], dt, steps))

    def many(self, mu0: np.ndarray, members: int, steps: int, dt: float, whole: int | None = None) -> np.ndarray:
        """An ensemble; its first steps, if the whole run has more: a tree of a longer path is higher."""
        return np.asarray(self._many(self._jnp.asarray(mu0), self._keys(members), dt, steps, whole))


class Torchsde:
    """`sdeint` with its Stratonovich midpoint method, in float64, without gradients."""

    name = "torchsde"

    def __init__(self):
        import torch
        import torchsde

        self.version = f"{torchsde.__version__}, torch {torch.__version__}"
        self._torch, self._sde = torch, torchsde
        inertia, chi, alpha = (torch.tensor(x, dtype=torch.float64) for x in (INERTIA, CHI, ALPHA))

        class HeavyTop(torch.nn.Module):
            noise_type, sde_type = "scalar", "stratonovich"

            def f(self, t, mu):
                p, g = mu[:, :3], mu[:, 3:]
                w = p / inertia
                c = torch.linalg.cross
                return torch.cat([c(p, w) + c(chi.expand_as(g), g), c(g, w)], dim=1)

            def g(self, t, mu):
                a = alpha.expand(len(mu), 3)
                c = torch.linalg.cross
                return torch.cat([c(mu[:, :3], a), c(mu[:, 3:], a)], dim=1)[..., None]

        class Given(torchsde.BaseBrownian):
            """A path that was given on the grid."""

            def __init__(self, W, dt):
                super().__init__()
                self.W, self.dt = W, dt

            def __call__(self, ta, tb=None, return_U=False, return_A=False):
                a, b = (round(float(t) / self.dt) for t in (ta, tb))
                return (self.W[b] - self.W[a]).reshape(1, 1)

            def __repr__(self):
                return "Given"

            dtype = property(lambda self: torch.float64)
            device = property(lambda self: torch.device("cpu"))
            shape = property(lambda self: (1, 1))
            levy_area_approximation = property(lambda self: "none")

        self._system, self._given = HeavyTop(), Given
        torch.set_num_threads(1)

    def one(self, mu0: np.ndarray, dW: np.ndarray, dt: float) -> np.ndarray:
        """One trajectory."""
        W = self._torch.tensor(np.concatenate([[0.0], np.cumsum(dW)]))
        return self._run(mu0[None], len(dW), dt, self._given(W, dt))[0]

    def many(self, mu0: np.ndarray, members: int, steps: int, dt: float) -> np.ndarray:
        """An ensemble."""
        bm = self._sde.BrownianInterval(0.0, steps * dt, size=(members, 1), dtype=self._torch.float64, entropy=1, dt=dt)
        return self._run(np.tile(mu0, (members, 1)), steps, dt, bm)

    def random(self, mu0: np.ndarray, steps: int, dt: float) -> np.ndarray:
        """One trajectory, random numbers included."""
        return self.many(mu0, 1, steps, dt)[0]

    def _run(self, y0: np.ndarray, steps: int, dt: float, bm) -> np.ndarray:
        torch = self._torch
        with torch.no_grad():
            times = torch.tensor([0.0, steps * dt], dtype=torch.float64)
            return self._sde.sdeint(self._system, torch.tensor(y0), times, bm=bm, method="midpoint", dt=dt)[-1].numpy()
