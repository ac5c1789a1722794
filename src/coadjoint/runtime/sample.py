"""`sample`: means of the Gibbs measure on an orbit, with errors that account for correlation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..baths import heat_bath
from ..integrators.base import Integrator
from ..integrators.weak_splitting import NinomiyaVictoir
from ..numerics import random, validation
from ..numerics.html import as_html
from ..numerics.signatures import check_function
from ..states import check_state
from ..systems import System
from .ensemble import ensemble
from .stats import Stats

if TYPE_CHECKING:
    import xarray

_LONG = 4  # autocorrelation times per member that are needed to estimate correlations


def sample(
    system: System,
    mu0: Any,
    *,
    temperature: float,
    t1: float,
    dt: float,
    key: Any,
    friction: float = 1.0,
    fields: Any = None,
    members: int = 64,
    burn_in: float | None = None,
    save_every: int = 1,
    observables: Mapping[str, Callable[[Any], Any]] | None = None,
    integrator: Integrator = NinomiyaVictoir(),
    backend: str = "auto",
) -> "Sample":
    """Estimate means of the Gibbs measure exp(−h/T) on the orbit of mu0 by an ensemble in a heat bath.

    Member k starts at flow(ξ_k, mu0) with a normally distributed element ξ_k of the algebra. The R-hat of the members
    therefore measures whether their initial states still matter. Time-step bias is not included in the standard errors.
    The default method has weak order 2: rerun with dt/2 to estimate the bias.

    Parameters
    ----------
    system : System
        The system without noise. It must not depend on time.
    mu0 : array
        A state on the orbit.
    temperature : float
        The temperature T.
    t1, dt : float
        The length of each trajectory, and the time step.
    key : int or JAX key
        The seed of initial states and noise.
    friction : float, default 1.0
        The friction coefficient. It influences the correlation time, not the means.
    fields : array, optional
        The directions of the noise, as in `heat_bath`.
    members : int, default 64
        The number of trajectories.
    burn_in : float, optional
        The time that is omitted at the start, by default t1/5.
    save_every : int, default 1
        The number of steps between saved values.
    observables : mapping of str to callable, optional
        Real functions of the state, in addition to the energy.
    integrator : Integrator, default NinomiyaVictoir()
        The method.
    backend : str, default "auto"
        As in `solve`.

    Returns
    -------
    Sample

    Raises
    ------
    ValueError
        If the system, its temperature or its friction depends on time, or an argument is invalid.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system = cj.System(cj.SO3(), lambda m: m[2])
    >>> found = cj.sample(system, [0, 0, 1.0], temperature=0.5, t1=50.0, dt=0.1, key=0, members=16)
    >>> sorted(found.mean)
    ['energy']
    """
    bath = heat_bath(system, temperature=temperature, friction=friction, fields=fields)
    if bath.timed:
        raise ValueError(
            "sample needs a system, a temperature and a friction that do not depend on time, because it averages over "
            "time: use ensemble(heat_bath(system, ...), ...) instead."
        )
    members = validation.count("members", members, least=4)
    t1, dt = validation.positive("t1", t1), validation.positive("dt", dt)
    burn_in = 0.2 * t1 if burn_in is None else float(burn_in)
    if not 0 <= burn_in < t1:
        raise ValueError(f"burn_in must be at least 0 and below t1 = {t1:g}, not {burn_in:g}.")
    functions = dict(observables or {})
    if "energy" in functions:
        raise ValueError("observables must not have 'energy', which is there by itself.")
    state = jax.ShapeDtypeStruct(bath.algebra.shape, bath.algebra.dtype)
    for name, f in functions.items():
        check_function(f"observables[{name!r}]", f, ("mu",))
        out = jax.eval_shape(f, state)
        if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
            raise ValueError(f"observables[{name!r}] must give one real number, not {out}.")
    first = int(np.ceil(burn_in / (dt * save_every) - 1e-9))
    saved = int(t1 / (dt * save_every) + 1e-9) + 1
    if saved - first < 8:
        raise ValueError(f"after burn_in = {burn_in:g} there must be 8 saved times at least, not {saved - first}.")
    starts = _starts(bath, check_state(bath.algebra, "mu0", mu0), members, key)
    ens = ensemble(
        bath, starts, members=members, t1=t1, dt=dt, key=key, integrator=integrator, save_every=save_every,
        save=lambda mu: {"energy": bath.energy(mu), **{name: f(mu) for name, f in functions.items()}}, backend=backend,
    )  # fmt: skip
    values = {name: np.asarray(x)[:, first:] for name, x in ens.saved.items()}
    return Sample(values, float(temperature), dt * save_every, burn_in, ens.stats)


def _starts(system: System, mu0: Array, members: int, key: Any) -> Array:
    """Return the initial states of the members, on the orbit of mu0."""
    algebra, key = system.algebra, random.as_key(key)

    def start(member: Array) -> Array:
        own = random.member_key(key, random.INITIAL, member)
        return algebra.flow(algebra.element(random.normals(own, 0, algebra.dim, 0, 2)[0]), mu0)

    return jax.jit(jax.vmap(start))(jnp.arange(members))


@dataclass(frozen=True, repr=False)
class Sample:
    """Means of the Gibbs measure with their errors, as `sample` returns them.

    The properties `mean`, `standard_error`, `autocorrelation_time`, `effective_size` and `rhat` are dictionaries with
    one entry per observable. The autocorrelation time is integrated, in units of t. The effective size is the
    equivalent number of independent states. R-hat is the spread between half-chains over that within them.

    Parameters
    ----------
    values : dict of str to array, shape (members, n_saved)
        The values of the energy and of each observable after the burn-in.
    temperature : float
        The temperature.
    spacing : float
        The time between saved values.
    burn_in : float
        The time that was omitted at the start.
    stats : Stats
        The statistics of the solver.
    """

    values: dict[str, np.ndarray]
    temperature: float
    spacing: float  # of saved times
    burn_in: float
    stats: Stats

    @property
    def mean(self) -> dict[str, float]:
        """Over members and times."""
        return {name: float(x.mean()) for name, x in self.values.items()}

    @property
    def standard_error(self) -> dict[str, float]:
        """Of the means, with correlation in time."""
        sizes = self.effective_size
        return {name: float(x.std() / np.sqrt(sizes[name])) for name, x in self.values.items()}

    @property
    def autocorrelation_time(self) -> dict[str, float]:
        """1 + 2 Σ ρ_k, times the spacing."""
        return {name: self.spacing * correlation(x) for name, x in self.values.items()}

    @property
    def effective_size(self) -> dict[str, float]:
        """The number of values over 1 + 2 Σ ρ_k."""
        return {name: x.size / correlation(x) for name, x in self.values.items()}

    @property
    def rhat(self) -> dict[str, float]:
        """Of half-chains."""
        return {name: split_rhat(x) for name, x in self.values.items()}

    def to_xarray(self) -> "xarray.Dataset":
        """The values with the dimensions `chain` (members) and `draw` (times), as ArviZ takes them."""
        import xarray as xr

        members, times = next(iter(self.values.values())).shape
        coords = {"chain": np.arange(members), "draw": np.arange(times)}
        attrs = {"temperature": self.temperature, "spacing": self.spacing, "burn_in": self.burn_in}
        return xr.Dataset({name: (("chain", "draw"), x) for name, x in self.values.items()}, coords, attrs)

    @property
    def words(self) -> list[str]:
        """Return the warnings about the sample."""
        out = []
        for name, x in self.values.items():
            reason = why_not_mixed(x)
            if reason:
                out.append(f"not mixed: {name}: {reason}; take a longer t1.")
        slow = max(self.autocorrelation_time.values())
        if self.burn_in < 5 * slow:
            out.append(f"burn_in = {self.burn_in:g} is short beside the autocorrelation time {slow:.3g}.")
        return out

    def __repr__(self) -> str:
        """A table."""
        head = ("", "mean", "standard error", "autocorrelation time", "effective size", "R-hat")
        columns = (self.mean, self.standard_error, self.autocorrelation_time, self.effective_size, self.rhat)
        formats = ("{:.6g}", "{:.2g}", "{:.3g}", "{:.0f}", "{:.4f}")
        rows = [[name, *(f.format(c[name]) for f, c in zip(formats, columns, strict=True))] for name in self.values]
        cells = zip(*([x.ljust(max(map(len, c))) for x in c] for c in zip(head, *rows, strict=True)), strict=True)
        members, times = next(iter(self.values.values())).shape
        first = f"T = {self.temperature:g}: {members} members, {times} times each after t = {self.burn_in:g}"
        return "\n".join([first, *("  ".join(line).rstrip() for line in cells), *self.words])

    def _repr_html_(self) -> str:
        return as_html(self)


def correlation(x: Float[np.ndarray, "members times"]) -> float:
    """1 + 2 Σ ρ_k over members, ρ_k = 1 − (W − mean autocovariance)/V⁺, to the first pair below 0 (Geyer).

    Members whose means differ count as correlated, as they should (Gelman et al., Bayesian Data Analysis, 11.5).
    """
    m, n = x.shape
    covariance = _autocovariance(x)
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + np.var(x.mean(axis=1), ddof=1)
    if total <= 0:
        return 1.0
    return _geyer(1.0 - (within - covariance * n / (n - 1)) / total, 1.0 / np.log10(max(m * n, 10)))


def why_not_mixed(x: Float[np.ndarray, "members times"]) -> str:
    """The reason why members do not agree yet; empty if they agree as well as correlation in time lets them.

    Many short members may disagree although each has forgotten its start, and then R-hat is large. The spread of their
    means is therefore compared with W τ/n, which the correlation within members explains.
    """
    m, n = x.shape
    covariance, between = _autocovariance(x), np.var(x.mean(axis=1), ddof=1)
    if covariance[0] <= 1e-28 * np.mean(x) ** 2:
        return "" if between <= 1e-28 * np.mean(x) ** 2 else "its members do not move"
    tau = _geyer(covariance / covariance[0], 1.0)
    for _ in range(3):  # the means of members were subtracted, not the mean: their variance is missing
        missing = min(covariance[0] * tau / n, covariance[0])
        tau = _geyer((covariance + missing) / (covariance[0] + missing), 1.0)
    if n < _LONG * tau:
        return f"a member has {n / tau:.1f} autocorrelation times, and at least {_LONG} are needed"
    ratio, allowed = between / ((covariance[0] + missing) * tau / n), 2.0 + 5.0 * np.sqrt(2.0 / (m - 1))
    if ratio > allowed:
        return f"the variance of the means of members is {ratio:.1f} times what correlation in time explains"
    return ""


def _autocovariance(x: Float[np.ndarray, "members times"]) -> Float[np.ndarray, " times"]:
    """The mean over members of the autocovariance about the mean of each."""
    n = x.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(x - x.mean(axis=1, keepdims=True), size, axis=1)) ** 2
    return np.fft.irfft(spectrum.mean(axis=0), size)[:n] / n


def _geyer(rho: Float[np.ndarray, " times"], least: float) -> float:
    """1 + 2 Σ ρ_k to the first pair below 0, the pairs made monotone; at least `least`."""
    pairs = rho[: len(rho) - len(rho) % 2].reshape(-1, 2).sum(axis=1)
    below = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: below[0] if len(below) else None])
    return max(float(2.0 * pairs.sum() - 1.0), least)


def split_rhat(x: Float[np.ndarray, "members times"]) -> float:
    """√(V⁺/W) of the halves of all chains (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021)."""
    n = x.shape[1] // 2
    halves = np.concatenate([x[:, :n], x[:, -n:]])
    within = halves.var(axis=1, ddof=1).mean()
    between = halves.mean(axis=1).var(ddof=1)
    return float(np.sqrt((n - 1) / n + between / within)) if within > 0 else 1.0 if between == 0 else float("inf")
