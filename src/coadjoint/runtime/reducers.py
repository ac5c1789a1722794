"""Streaming statistics over the members of an ensemble, one set for each saved time.

A reducer is any object with four methods. They see one saved time; the ensemble maps them over all.

- `init(x)`: the accumulator before any member; x is the saved value of one member (its shape and type count).
- `update(acc, x, weight)`: add a batch of members; x has a leading axis of members, and weight is 1 for a member
  and 0 for padding.
- `merge(acc, other)`: merge two accumulators of disjoint members.
- `result(acc)`: the statistics that the user receives.

A reducer may have a state for each member, carried from one saved time to the next, by two more methods:

- `start(x)`: the state before the first saved time; x is the value of the member at the initial time.
- `observe(state, x)`: called at every saved time, in order. It returns the new state and a value. `init` and `update`
  then receive this value in place of x. `observe(state, x, params, t)` also receives the member's params and the time.

Several at once are a dict of them: the result then has their names.
"""

from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..numerics import validation
from ..numerics.signatures import check_signature
from ..systems import System
from .saved_times import SavedTimes
from .saved_values import MemberFunction, more_arguments, trace

_MOST_BINS = 10_000_000
_OBSERVED = {"start": ("x",), "observe": ("state", "x")}
_METHODS = {"init": ("x",), "update": ("acc", "x", "weight"), "merge": ("acc", "other"), "result": ("acc",)}


class Reducer(Protocol):
    """The interface of `ensemble(reduce=...)`.

    Two optional methods, `start(x)` and `observe(state, x)` or `observe(state, x, params, t)`, follow each member in
    time: `observe` returns the new state and the value that `update` receives in place of x.

    Method arguments
    ----------------
    x : pytree
        The saved value of one member. In `update` it has a leading axis of members.
    weight : array, shape (members,)
        1 for a member, and 0 for padding.
    acc, other : pytree
        Accumulators: the statistics of the members so far.
    state : pytree
        The state of one member.
    params : pytree
        The params of the member.
    t : float
        The saved time.
    """

    def init(self, x: PyTree) -> PyTree:
        """The accumulator before any member."""
        ...

    def update(self, acc: PyTree, x: PyTree, weight: Float[Array, " members"]) -> PyTree:
        """Add a batch of members."""
        ...

    def merge(self, acc: PyTree, other: PyTree) -> PyTree:
        """Merge two accumulators."""
        ...

    def result(self, acc: PyTree) -> PyTree:
        """The statistic."""
        ...


def wide(dtype: Any) -> Any:
    """The type of averages: that of double precision, also of integers, of truth values and of single precision."""
    return jnp.promote_types(dtype, jnp.float64)


class _Moments(NamedTuple):
    n: Float[Array, ""]
    mean: PyTree
    m2: PyTree  # sums of squared deviations (products, for the covariance) from the mean


class Mean(eqx.Module):
    """Mean and variance of every saved entry: `{"mean", "variance", "standard_error"}` (Chan, Golub and LeVeque)."""

    def init(self, x: PyTree) -> _Moments:
        """No member yet."""
        zero = jax.tree.map(lambda a: jnp.zeros(a.shape, wide(a.dtype)), x)
        return _Moments(jnp.zeros(()), zero, jax.tree.map(lambda a: jnp.zeros(a.shape), x))

    def update(self, acc: _Moments, x: PyTree, weight: Float[Array, " members"]) -> _Moments:
        """Merge the moments of the batch."""
        n = jnp.sum(weight)

        def w(a):
            return weight.reshape(-1, *(1,) * (a.ndim - 1))

        def average(a):
            rough = jnp.sum(w(a) * a, axis=0) / jnp.maximum(n, 1.0)
            return rough + jnp.sum(w(a) * (a - rough), axis=0) / jnp.maximum(n, 1.0)  # its round-off

        x = jax.tree.map(lambda a: a.astype(wide(a.dtype)), x)
        mean = jax.tree.map(average, x)
        m2 = jax.tree.map(lambda a, m: jnp.sum(w(a) * jnp.abs(a - m) ** 2, axis=0), x, mean)
        return self.merge(acc, _Moments(n, mean, m2))

    def merge(self, acc: _Moments, other: _Moments) -> _Moments:
        """Merge two sets of moments."""
        n = acc.n + other.n
        share = other.n / jnp.maximum(n, 1.0)
        mean = jax.tree.map(lambda a, b: a + share * (b - a), acc.mean, other.mean)
        m2 = jax.tree.map(
            lambda p, q, a, b: p + q + acc.n * share * jnp.abs(b - a) ** 2, acc.m2, other.m2, acc.mean, other.mean
        )
        return _Moments(n, mean, m2)

    def result(self, acc: _Moments) -> dict[str, PyTree]:
        """Mean, unbiased variance, and the standard error of the mean."""
        variance = jax.tree.map(lambda s: s / jnp.maximum(acc.n - 1.0, 1.0), acc.m2)
        error = jax.tree.map(lambda v: jnp.sqrt(v / jnp.maximum(acc.n, 1.0)), variance)
        return {"mean": acc.mean, "variance": variance, "standard_error": error}


class Covariance(eqx.Module):
    """Mean and covariance matrix of the saved vector (flattened): `{"mean", "covariance"}`."""

    def init(self, x: Any) -> _Moments:
        """No member yet."""
        size = sum(a.size for a in jax.tree.leaves(x))
        dtype = wide(jnp.result_type(*(a.dtype for a in jax.tree.leaves(x))))
        return _Moments(jnp.zeros(()), jnp.zeros(size, dtype), jnp.zeros((size, size), dtype))

    def update(self, acc: _Moments, x: Any, weight: Float[Array, " members"]) -> _Moments:
        """Merge the moments of the batch."""
        rows = jnp.concatenate([a.reshape(a.shape[0], -1) for a in jax.tree.leaves(x)], axis=1)
        rows = rows.astype(wide(rows.dtype))
        n = jnp.sum(weight)
        mean = weight @ rows / jnp.maximum(n, 1.0)
        mean = mean + weight @ (rows - mean) / jnp.maximum(n, 1.0)  # its round-off
        away = (rows - mean) * weight[:, None]
        return self.merge(acc, _Moments(n, mean, away.T @ jnp.conj(away)))

    def merge(self, acc: _Moments, other: _Moments) -> _Moments:
        """Merge two sets of moments."""
        n = acc.n + other.n
        share = other.n / jnp.maximum(n, 1.0)
        gap = other.mean - acc.mean
        return _Moments(n, acc.mean + share * gap, acc.m2 + other.m2 + acc.n * share * jnp.outer(gap, jnp.conj(gap)))

    def result(self, acc: _Moments) -> dict[str, Array]:
        """Mean and unbiased covariance."""
        return {"mean": acc.mean, "covariance": acc.m2 / jnp.maximum(acc.n - 1.0, 1.0)}


class Quantiles(eqx.Module):
    """Quantiles of every saved entry, from a histogram: `{"quantiles", "outside"}`.

    `quantiles` has an axis of probabilities after that of saved times. `outside` is the share of members outside of the
    histogram. They count as −∞ below and as +∞ above; a value that is not a number counts as above.

    Parameters
    ----------
    q : float or sequence of float, default (0.05, 0.5, 0.95)
        The probabilities.
    low, high : float or array
        The ends of the histogram, for all entries or one by one (an array of their shape).
    bins : int, default 1000
        The number of bins. A quantile is accurate to one bin, (high − low)/bins.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid, or if saved values are complex or do not have the shape of `low`.
    """

    q: tuple[float, ...] = eqx.field(static=True)
    low: Float[Array, "..."]
    high: Float[Array, "..."]
    bins: int = eqx.field(static=True)

    def __init__(self, q: Any = (0.05, 0.5, 0.95), *, low: Any, high: Any, bins: int = 1000):
        given = np.atleast_1d(validation.numbers("q", q, "probabilities between 0 and 1", "fiu"))
        self.q = tuple(float(p) for p in given.ravel())
        if given.ndim != 1 or not self.q or not all(0.0 <= p <= 1.0 for p in self.q):
            raise ValueError(f"q must be probabilities between 0 and 1, not {q!r}.")
        given = {"low": low, "high": high}
        ends = [np.asarray(validation.numbers(name, x, "real numbers", "fiu"), float) for name, x in given.items()]
        same = () in (ends[0].shape, ends[1].shape) or ends[0].shape == ends[1].shape
        if not same or not np.all(np.isfinite(ends[0]) & np.isfinite(ends[1]) & (ends[0] < ends[1])):
            raise ValueError(f"low must be below high, both finite, not low = {low!r} and high = {high!r}.")
        self.low, self.high = (jnp.asarray(end) for end in ends)
        self.bins = validation.count("bins", bins)
        if self.bins > _MOST_BINS:
            raise ValueError(f"bins must be at most {_MOST_BINS}, not {bins!r}.")

    def init(self, x: PyTree) -> PyTree:
        """Empty histograms: below, the bins, above."""
        for a in jax.tree.leaves(x):
            if jnp.issubdtype(a.dtype, jnp.complexfloating):
                raise TypeError("reduce: Quantiles take real numbers: give save= a function that returns them.")
            for name, end in (("low", self.low), ("high", self.high)):
                pairs = zip(end.shape[::-1], a.shape[::-1], strict=False)
                if end.ndim > len(a.shape) or any(n not in (1, whole) for n, whole in pairs):
                    raise ValueError(f"reduce.{name} must be one number, or of shape {a.shape}, not {end.shape}.")
        return jax.tree.map(lambda a: jnp.zeros((*a.shape, self.bins + 2)), x)

    def update(self, acc: PyTree, x: PyTree, weight: Float[Array, " members"]) -> PyTree:
        """Count the members of a batch."""

        def count(histogram: Array, a: Array) -> Array:
            place = jnp.floor((a - self.low) * (self.bins / (self.high - self.low)))
            place = jnp.where(a == self.high, self.bins - 1, place)
            place = jnp.where(jnp.isnan(place), self.bins, jnp.clip(place, -1, self.bins)).astype(int) + 1
            flat, place = histogram.reshape(-1, self.bins + 2), place.reshape(a.shape[0], -1)
            counted = flat.at[jnp.arange(len(flat)), place].add(jnp.broadcast_to(weight[:, None], place.shape))
            return counted.reshape(histogram.shape)

        return jax.tree.map(count, acc, x)

    def merge(self, acc: PyTree, other: PyTree) -> PyTree:
        """Sums of counts."""
        return jax.tree.map(jnp.add, acc, other)

    def result(self, acc: PyTree) -> dict[str, PyTree]:
        """Return the quantile q, interpolated within its bin."""

        def quantiles(histogram: Array) -> Array:
            total = jnp.cumsum(histogram, axis=-1)

            def one(p: Array) -> Array:
                target = p * total[..., -1:]
                k = jnp.argmax(
                    (total >= target) & (histogram > 0), axis=-1, keepdims=True
                )  # the bin where it is reached
                here, before = (jnp.take_along_axis(a, k, -1) for a in (histogram, total - histogram))
                share = jnp.squeeze((target - before) / jnp.maximum(here, 1.0), -1)
                k = jnp.squeeze(k, -1)
                value = self.low + (k - 1 + share) * ((self.high - self.low) / self.bins)
                return jnp.where(k == 0, -jnp.inf, jnp.where(k > self.bins, jnp.inf, value))

            return jax.vmap(one)(jnp.asarray(self.q))

        def outside(histogram: Array) -> Array:
            return (histogram[..., 0] + histogram[..., -1]) / jnp.maximum(jnp.sum(histogram, axis=-1), 1.0)

        return {"quantiles": jax.tree.map(quantiles, acc), "outside": jax.tree.map(outside, acc)}


class MultiReducer(eqx.Module):
    """Several reducers at once, by name: what `ensemble(reduce={"mean": Mean(), "spread": Quantiles(...)})` makes.

    If one of them observes members, each receives a value of its own.
    """

    reducers: dict[str, Any]
    observing: bool = eqx.field(static=True)

    def __init__(self, reducers: dict[str, Any]):
        self.reducers = reducers
        self.observing = any(observes(r) for r in reducers.values())

    def start(self, x: PyTree) -> dict[str, PyTree]:
        """The states of each."""
        return {name: r.start(x) if observes(r) else None for name, r in self.reducers.items()}

    def observe(self, state: dict[str, PyTree], x: PyTree, params: PyTree, t: Any) -> tuple[dict, dict]:
        """The states and the values of each."""
        both = {name: observe(r, state[name], x, params, t) for name, r in self.reducers.items()}
        return {name: s for name, (s, _) in both.items()}, {name: y for name, (_, y) in both.items()}

    def _own(self, x: PyTree) -> dict[str, PyTree]:
        return x if self.observing else dict.fromkeys(self.reducers, x)

    def init(self, x: PyTree) -> dict[str, PyTree]:
        """Each its own."""
        own = self._own(x)
        return {name: r.init(own[name]) for name, r in self.reducers.items()}

    def update(self, acc: dict[str, PyTree], x: PyTree, weight: Float[Array, " members"]) -> dict[str, PyTree]:
        """Each its own."""
        own = self._own(x)
        return {name: r.update(acc[name], own[name], weight) for name, r in self.reducers.items()}

    def merge(self, acc: dict[str, PyTree], other: dict[str, PyTree]) -> dict[str, PyTree]:
        """Each its own."""
        return {name: r.merge(acc[name], other[name]) for name, r in self.reducers.items()}

    def result(self, acc: dict[str, PyTree]) -> dict[str, PyTree]:
        """Return the result of each reducer by name."""
        return {name: r.result(acc[name]) for name, r in self.reducers.items()}


def as_reducer(reduce: Any) -> Any:
    """Return the user's reducer, or one that combines those of a dict; raise an error for other objects."""
    if reduce is None:
        return None
    if isinstance(reduce, dict):
        if not reduce or not all(isinstance(name, str) for name in reduce):
            raise TypeError(f"reduce must have reducers by their names, such as {{'mean': Mean()}}, not {reduce!r}.")
        return MultiReducer({name: as_reducer(one) for name, one in reduce.items()})
    missing = [name for name in _METHODS if not callable(getattr(reduce, name, None))]
    if missing or isinstance(reduce, type):
        what = f"has no {', '.join(missing)}" if missing else f"is a class: write {reduce.__name__}()"
        raise TypeError(f"reduce must be an object with init, update, merge and result, but it {what}.")
    for name, arguments in _METHODS.items():
        check_signature(f"reduce.{name}", getattr(reduce, name), arguments)
    if hasattr(reduce, "start") != hasattr(reduce, "observe"):
        has, lacks = ("start", "observe") if hasattr(reduce, "start") else ("observe", "start")
        raise TypeError(f"reduce has {has}, but no {lacks}: a reducer with a state per member has both.")
    if hasattr(reduce, "start"):
        check_signature("reduce.start", reduce.start, _OBSERVED["start"])
    return reduce


def observes(reduce: Any) -> bool:
    """Whether a reducer has a state per member."""
    return reduce.observing if isinstance(reduce, MultiReducer) else hasattr(reduce, "observe")


def observe(reduce: Any, state: PyTree, x: PyTree, params: PyTree, t: Any) -> tuple[PyTree, PyTree]:
    """Return the new state of a member and the value to reduce: x itself for a reducer without states."""
    if isinstance(reduce, MultiReducer):
        return reduce.observe(state, x, params, t)
    if not observes(reduce):
        return state, x
    with_params, names = observe_arguments(reduce, params is not None)
    return reduce.observe(state, x, *([params] if with_params else []), *([t] if names else []))


def observe_arguments(reduce: Any, has_params: bool) -> tuple[bool, tuple[str, ...]]:
    """Whether `observe` takes params, and ("t",) if it takes the time; raises if it has other arguments."""
    if isinstance(reduce, MultiReducer):
        each = [observe_arguments(r, has_params) for r in reduce.reducers.values() if observes(r)]
        return any(p for p, _ in each), max((names for _, names in each), default=())
    return more_arguments("reduce.observe", reduce.observe, _OBSERVED["observe"], has_params)


def trace_observe(system: System, reduce: Any, values: PyTree) -> MemberFunction | None:
    """`observe` of a reducer with a state per member as a traced function of such values."""
    if not observes(reduce):
        return None
    takes = observe_arguments(reduce, system.params is not None)
    state = jax.eval_shape(reduce.start, values)

    def call(state: PyTree, x: PyTree, *rest: PyTree) -> tuple[PyTree, PyTree]:
        given = rest[0] if takes[0] else None
        return observe(reduce, state, x, given, rest[-1] if takes[1] else None)

    traced = trace("observe", system, call, takes, [state, values])
    shown = lambda tree: [(x.shape, jnp.dtype(x.dtype)) for x in jax.tree.leaves(tree)]
    evaluated = lambda state, x, params: traced(state, x, params=params, t=jnp.zeros(()))[0]
    new = jax.eval_shape(evaluated, state, values, system.params)
    if jax.tree.structure(new) != jax.tree.structure(state) or shown(new) != shown(state):
        raise ValueError(f"reduce.observe must return a state like that of start: {shown(state)}, not {shown(new)}.")
    return traced


def check_spacing(reduce: Any, saved: SavedTimes) -> None:
    """Raise if a reducer needs equally spaced times and others are given."""
    each = reduce.reducers.values() if isinstance(reduce, MultiReducer) else [reduce]
    if saved.numbers is None or len(set(np.diff(saved.numbers).tolist())) <= 1:
        return
    for one in each:
        if getattr(one, "equally_spaced", False):
            raise ValueError(f"reduce: {type(one).__name__} needs equally spaced times: give save_every, not save_at.")
