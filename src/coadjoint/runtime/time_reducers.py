"""Reducers that observe each member along time: averages, maxima, autocovariances, first passages."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..numerics import validation
from .reducers import Mean, Reducer, as_reducer, observes, wide


def _inner(name: str, reduce: Any, default: Any) -> Any:
    """The reducer of observed values, which has no states."""
    found = as_reducer(default if reduce is None else reduce)
    if observes(found):
        raise TypeError(f"{name}(reduce=...) takes a reducer without a state per member, such as Mean().")
    return found


def _zeros(x: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jnp.zeros(a.shape, wide(a.dtype)), x)


def _real(name: str, x: PyTree) -> None:
    if any(jnp.issubdtype(a.dtype, jnp.complexfloating) for a in jax.tree.leaves(x)):
        raise TypeError(f"reduce: {name} takes real numbers: give save= a function that returns them.")


class _OfObserved(eqx.Module):
    """A reducer whose observed values another reducer receives."""

    reduce: eqx.AbstractVar[Any]

    def init(self, x: PyTree) -> PyTree:
        """Before any member."""
        return self.reduce.init(x)

    def update(self, acc: PyTree, x: PyTree, weight: Float[Array, " members"]) -> PyTree:
        """Fold in a batch of members."""
        return self.reduce.update(acc, x, weight)

    def merge(self, acc: PyTree, other: PyTree) -> PyTree:
        """Merge two accumulators."""
        return self.reduce.merge(acc, other)

    def result(self, acc: PyTree) -> PyTree:
        """The statistic."""
        return self.reduce.result(acc)


class _Average(NamedTuple):
    begun: Bool[Array, ""]
    first: Float[Array, ""]
    last: Float[Array, ""]
    value: PyTree  # at the last saved time
    mean: PyTree


class TimeAverage(_OfObserved):
    """Statistics over members of the time average of each member: (1/(t − t₀)) ∫ x dt from the first saved time t₀.

    The integral is the trapezoidal rule on the saved times, which need not be equally spaced. At t₀ it is x itself.

    Parameters
    ----------
    reduce : reducer, default Mean()
        The reducer of the averages of all members at each saved time.

    Raises
    ------
    TypeError
        If `reduce` is no reducer, or has a state per member itself.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.1, 0.1))
    >>> ens = cj.ensemble(system, mu0, members=8, t1=1.0, dt=0.1, key=0, reduce=cj.TimeAverage())
    >>> ens.reduced["mean"].shape
    (11, 3)
    """

    reduce: Any

    def __init__(self, reduce: Reducer | None = None):
        self.reduce = _inner("TimeAverage", reduce, Mean())

    def start(self, x: PyTree) -> _Average:
        """Nothing was observed."""
        zero = jnp.zeros(())
        return _Average(jnp.zeros((), bool), zero, zero, _zeros(x), _zeros(x))

    def observe(self, state: _Average, x: PyTree, t: Any) -> tuple[_Average, PyTree]:
        """With the interval since the last saved time."""
        first = jnp.where(state.begun, state.first, t)
        share = jnp.where(state.begun, (t - state.last) / jnp.where(state.begun, t - first, 1.0), 1.0)

        def averaged(mean: Array, before: Array, now: Array) -> Array:
            middle = jnp.where(state.begun, 0.5 * (before + now), now)
            return mean + share * (middle - mean)

        mean = jax.tree.map(averaged, state.mean, state.value, x)
        value = jax.tree.map(lambda a: a.astype(wide(a.dtype)), x)
        return _Average(jnp.ones((), bool), first, jnp.asarray(t, float), value, mean), mean


class RunningMax(_OfObserved):
    """Statistics over members of the largest value so far, max over saved times s ≤ t of x(s), of each saved entry.

    Parameters
    ----------
    reduce : reducer, default Mean()
        The reducer of the maxima of all members at each saved time, such as `Quantiles(...)`.

    Raises
    ------
    TypeError
        If `reduce` is no reducer, or has a state per member itself; if saved values are complex.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.1, 0.1))
    >>> ens = cj.ensemble(system, mu0, members=8, t1=1.0, dt=0.1, key=0, reduce=cj.RunningMax())
    >>> bool((ens.reduced["mean"][1:] >= ens.reduced["mean"][:-1]).all())
    True
    """

    reduce: Any

    def __init__(self, reduce: Reducer | None = None):
        self.reduce = _inner("RunningMax", reduce, Mean())

    def start(self, x: PyTree) -> PyTree:
        """Nothing was observed."""
        _real("RunningMax", x)
        return jax.tree.map(lambda a: jnp.full(a.shape, -jnp.inf, wide(a.dtype)), x)

    def observe(self, state: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
        """The larger of both."""
        largest = jax.tree.map(lambda a, b: jnp.maximum(a, b.astype(a.dtype)), state, x)
        return largest, largest


class _Passages(NamedTuple):
    n: Float[Array, ""]
    passed: PyTree
    mean: PyTree
    m2: PyTree


class _PassageTimes(eqx.Module):
    """The share of members that have passed, and the mean and variance of their times."""

    def init(self, x: PyTree) -> _Passages:
        zero = _zeros(x)
        return _Passages(jnp.zeros(()), zero, zero, zero)

    def update(self, acc: _Passages, x: PyTree, weight: Float[Array, " members"]) -> _Passages:
        def one(a: Array) -> tuple[Array, Array, Array]:
            w = jnp.where(jnp.isfinite(a), weight.reshape(-1, *(1,) * (a.ndim - 1)), 0.0)
            a = jnp.where(jnp.isfinite(a), a, 0.0)
            passed = jnp.sum(w, axis=0)
            mean = jnp.sum(w * a, axis=0) / jnp.maximum(passed, 1.0)
            return passed, mean, jnp.sum(w * (a - mean) ** 2, axis=0)

        leaves, tree = jax.tree.flatten(x)
        columns = zip(*map(one, leaves), strict=True)
        return self.merge(acc, _Passages(jnp.sum(weight), *(jax.tree.unflatten(tree, c) for c in columns)))

    def merge(self, acc: _Passages, other: _Passages) -> _Passages:
        passed = jax.tree.map(jnp.add, acc.passed, other.passed)
        share = jax.tree.map(lambda q, n: q / jnp.maximum(n, 1.0), other.passed, passed)
        mean = jax.tree.map(lambda a, b, s: a + s * (b - a), acc.mean, other.mean, share)
        m2 = jax.tree.map(
            lambda p, q, a, b, n, s: p + q + n * s * (b - a) ** 2,
            acc.m2, other.m2, acc.mean, other.mean, acc.passed, share,
        )  # fmt: skip
        return _Passages(acc.n + other.n, passed, mean, m2)

    def result(self, acc: _Passages) -> dict[str, PyTree]:
        some = lambda x: jax.tree.map(lambda a, n: jnp.where(n > 0, a, jnp.nan), x, acc.passed)
        variance = jax.tree.map(lambda s, n: s / jnp.maximum(n - 1.0, 1.0), acc.m2, acc.passed)
        error = jax.tree.map(lambda v, n: jnp.sqrt(v / jnp.maximum(n, 1.0)), variance, acc.passed)
        share = jax.tree.map(lambda n: n / jnp.maximum(acc.n, 1.0), acc.passed)
        return {"passed": share, "mean": some(acc.mean), "variance": some(variance), "standard_error": some(error)}


class _Waiting(NamedTuple):
    begun: Bool[Array, ""]
    last: Float[Array, ""]
    value: PyTree  # at the last saved time
    time: PyTree  # of the first passage; infinite before


class FirstPassage(_OfObserved):
    """Statistics over members of the first time at which a saved entry reaches a level, up to each saved time.

    The result has the share of members that have `passed`. It has the `mean`, `variance` and `standard_error` of their
    times (NaN if there are none). Values are observed at saved times only. The time of a passage is interpolated
    linearly between two of them; a shorter excursion beyond the level is missed.

    Parameters
    ----------
    level : float or array
        The level: one number, or an array of the shape of the saved value.
    direction : {"above", "below"}, default "above"
        Whether a passage is x ≥ level or x ≤ level.
    reduce : reducer, optional
        Another statistic of the times, infinite for members that have not passed: for example `Quantiles(...)`.

    Raises
    ------
    TypeError, ValueError
        If the level is not finite or does not fit the saved value, or if `reduce` is no reducer. A reducer with a state
        per member and complex values raise errors, too.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.1, 0.1))
    >>> first = cj.FirstPassage(level=0.0, direction="below")
    >>> ens = cj.ensemble(system, mu0, members=8, t1=1.0, dt=0.1, key=0, reduce=first)
    >>> sorted(ens.reduced)
    ['mean', 'passed', 'standard_error', 'variance']
    """

    level: Float[Array, "..."]
    direction: str = eqx.field(static=True)
    reduce: Any

    def __init__(self, level: Any, direction: str = "above", reduce: Reducer | None = None):
        given = np.asarray(validation.numbers("level", level, "real numbers", "fiu"), float)
        if not np.all(np.isfinite(given)):
            raise ValueError(f"level must be finite, not {level!r}.")
        self.level = jnp.asarray(given)
        self.direction = validation.choice("direction", direction, ("above", "below"))
        self.reduce = _inner("FirstPassage", reduce, _PassageTimes())

    def start(self, x: PyTree) -> _Waiting:
        """Nothing was observed."""
        _real("FirstPassage", x)
        for a in jax.tree.leaves(x):
            if self.level.shape not in ((), a.shape):
                raise ValueError(f"reduce.level must be one number, or of shape {a.shape}, not {self.level.shape}.")
        never = jax.tree.map(lambda a: jnp.full(a.shape, jnp.inf), x)
        return _Waiting(jnp.zeros((), bool), jnp.zeros(()), _zeros(x), never)

    def observe(self, state: _Waiting, x: PyTree, t: Any) -> tuple[_Waiting, PyTree]:
        """The time of the passage, if there was one."""
        above = self.direction == "above"

        def passed(time: Array, before: Array, now: Array) -> Array:
            beyond = now >= self.level if above else now <= self.level
            step = now - before
            share = jnp.clip((self.level - before) / jnp.where(step == 0.0, 1.0, step), 0.0, 1.0)
            here = jnp.where(state.begun, state.last + share * (t - state.last), t)
            return jnp.where(jnp.isinf(time) & beyond, here, time)

        value = jax.tree.map(lambda a: a.astype(wide(a.dtype)), x)
        time = jax.tree.map(passed, state.time, state.value, value)
        return _Waiting(jnp.ones((), bool), jnp.asarray(t, float), value, time), time


class _Comoments(NamedTuple):
    n: Float[Array, " lags"]
    now: PyTree  # means of x(t) over the pairs …
    before: PyTree  # … and of x(t − lag)
    product: PyTree  # sums of products of their deviations


class _History(NamedTuple):
    seen: Float[Array, ""]
    values: PyTree  # the last ones, with a leading axis of lags
    moments: _Comoments


class Autocovariance(eqx.Module):
    """Autocovariance C(k) = E[(x(t) − m)(x(t − k Δ) − m)*] of each saved entry, of a stationary run.

    At each saved time the expectation is over all members and all pairs of saved times so far, Δ apart. The result has
    `autocovariance` and `autocorrelation` = C(k)/C(0), with an axis of lags k = 0 … `lags`, and the `mean` m.

    Parameters
    ----------
    lags : int
        The largest lag, in saved times. A member carries this many saved values.

    Raises
    ------
    TypeError, ValueError
        If `lags` is not a positive integer; in `ensemble`, if saved times are not equally spaced.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.1, 0.1))
    >>> ens = cj.ensemble(system, mu0, members=8, t1=1.0, dt=0.1, key=0, reduce=cj.Autocovariance(lags=4))
    >>> ens.reduced["autocovariance"].shape
    (11, 5, 3)
    """

    lags: int = eqx.field(static=True)
    equally_spaced: bool = eqx.field(static=True)

    def __init__(self, lags: int):
        self.lags, self.equally_spaced = validation.count("lags", lags), True

    def start(self, x: PyTree) -> _History:
        """Nothing was observed."""
        rows = jax.tree.map(lambda a: jnp.zeros((self.lags + 1, *a.shape), wide(a.dtype)), x)
        return _History(jnp.zeros(()), rows, _Comoments(jnp.zeros(self.lags + 1), rows, rows, rows))

    def observe(self, state: _History, x: PyTree) -> tuple[_History, _Comoments]:
        """With the pairs of this time and earlier ones."""
        seen = state.seen + 1.0
        values = jax.tree.map(
            lambda a, b: jnp.concatenate([b[None].astype(a.dtype), a[:-1]]), state.values, x
        )  # lag 0 first
        there = np.arange(self.lags + 1) < seen
        n = state.moments.n + there

        def moments(now: Array, before: Array, product: Array, rows: Array) -> tuple[Array, Array, Array]:
            own = lambda a: a.reshape(-1, *(1,) * (rows.ndim - 1))
            share = own(there / jnp.maximum(n, 1.0))
            away = rows[:1] - now
            later = before + share * (rows - before)
            return now + share * away, later, product + own(there * 1.0) * away * jnp.conj(rows - later)

        trees = state.moments.now, state.moments.before, state.moments.product, values
        flat = [jax.tree.leaves(tree) for tree in trees]
        columns = zip(*(moments(*leaves) for leaves in zip(*flat, strict=True)), strict=True)
        found = _Comoments(n, *(jax.tree.unflatten(jax.tree.structure(values), c) for c in columns))
        return _History(seen, values, found), found

    def init(self, x: _Comoments) -> _Comoments:
        """No pair yet."""
        return _Comoments(jnp.zeros(self.lags + 1), _zeros(x.now), _zeros(x.before), _zeros(x.product))

    def update(self, acc: _Comoments, x: _Comoments, weight: Float[Array, " members"]) -> _Comoments:
        """The moments of the batch, merged."""
        w = weight[:, None] * x.n
        n = jnp.sum(w, axis=0)
        own = lambda a, b: a.reshape(*a.shape, *(1,) * (b.ndim - a.ndim))
        average = lambda a: jnp.sum(own(w, a) * a, axis=0) / jnp.maximum(own(n, a[0]), 1.0)
        now, before = jax.tree.map(average, x.now), jax.tree.map(average, x.before)
        product = jax.tree.map(
            lambda p, a, b, ma, mb: jnp.sum(own(weight, p) * p + own(w, p) * (a - ma) * jnp.conj(b - mb), axis=0),
            x.product, x.now, x.before, now, before,
        )  # fmt: skip
        return self.merge(acc, _Comoments(n, now, before, product))

    def merge(self, acc: _Comoments, other: _Comoments) -> _Comoments:
        """Merge two sets of moments."""
        n = acc.n + other.n
        share = other.n / jnp.maximum(n, 1.0)
        own = lambda a, b: a.reshape(-1, *(1,) * (b.ndim - 1))
        mean = lambda a, b: a + own(share, a) * (b - a)
        product = jax.tree.map(
            lambda p, q, a, c, b, d: p + q + own(acc.n * share, p) * (c - a) * jnp.conj(d - b),
            acc.product, other.product, acc.now, other.now, acc.before, other.before,
        )  # fmt: skip
        now, before = jax.tree.map(mean, acc.now, other.now), jax.tree.map(mean, acc.before, other.before)
        return _Comoments(n, now, before, product)

    def result(self, acc: _Comoments) -> dict[str, PyTree]:
        """Autocovariance, autocorrelation and mean; NaN for lags without pairs."""
        own = lambda a: acc.n.reshape(-1, *(1,) * (a.ndim - 1))
        found = jax.tree.map(lambda p: jnp.where(own(p) > 0, p / jnp.maximum(own(p), 1.0), jnp.nan), acc.product)
        relative = jax.tree.map(lambda c: c / jnp.where(c[:1] == 0.0, jnp.nan, c[:1]), found)
        mean = jax.tree.map(lambda a: a[0], acc.now)
        return {"autocovariance": found, "autocorrelation": relative, "mean": mean}
