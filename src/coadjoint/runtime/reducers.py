"""Streaming statistics over the members of an ensemble, one set for each saved time.

A reducer is any object with four methods. They see one saved time; the ensemble maps them over all.

- `init(x)`: the accumulator before any member; x is the saved value of one member (its shape and type count).
- `update(acc, x, weight)`: fold in a tile of members; x has a leading axis of members, and weight is 1 for a member
  and 0 for padding.
- `merge(acc, other)`: two accumulators of disjoint members as one.
- `result(acc)`: what the user wants to see.

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

_MOST_BINS = 10_000_000
_METHODS = {"init": ("x",), "update": ("acc", "x", "weight"), "merge": ("acc", "other"), "result": ("acc",)}


class Reducer(Protocol):
    """What `ensemble(reduce=...)` asks for."""

    def init(self, x: PyTree) -> PyTree:
        """The accumulator before any member."""
        ...

    def update(self, acc: PyTree, x: PyTree, weight: Float[Array, " members"]) -> PyTree:
        """Fold in a tile of members."""
        ...

    def merge(self, acc: PyTree, other: PyTree) -> PyTree:
        """Two accumulators as one."""
        ...

    def result(self, acc: PyTree) -> PyTree:
        """The statistic."""
        ...


def _wide(dtype: Any) -> Any:
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
        zero = jax.tree.map(lambda a: jnp.zeros(a.shape, _wide(a.dtype)), x)
        return _Moments(jnp.zeros(()), zero, jax.tree.map(lambda a: jnp.zeros(a.shape), x))

    def update(self, acc: _Moments, x: PyTree, weight: Float[Array, " members"]) -> _Moments:
        """The moments of the tile, merged."""
        n = jnp.sum(weight)

        def w(a):
            return weight.reshape(-1, *(1,) * (a.ndim - 1))

        def average(a):
            rough = jnp.sum(w(a) * a, axis=0) / jnp.maximum(n, 1.0)
            return rough + jnp.sum(w(a) * (a - rough), axis=0) / jnp.maximum(n, 1.0)  # its round-off

        x = jax.tree.map(lambda a: a.astype(_wide(a.dtype)), x)
        mean = jax.tree.map(average, x)
        m2 = jax.tree.map(lambda a, m: jnp.sum(w(a) * jnp.abs(a - m) ** 2, axis=0), x, mean)
        return self.merge(acc, _Moments(n, mean, m2))

    def merge(self, acc: _Moments, other: _Moments) -> _Moments:
        """Two sets of moments as one."""
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
        dtype = _wide(jnp.result_type(*(a.dtype for a in jax.tree.leaves(x))))
        return _Moments(jnp.zeros(()), jnp.zeros(size, dtype), jnp.zeros((size, size), dtype))

    def update(self, acc: _Moments, x: Any, weight: Float[Array, " members"]) -> _Moments:
        """The moments of the tile, merged."""
        rows = jnp.concatenate([a.reshape(a.shape[0], -1) for a in jax.tree.leaves(x)], axis=1)
        rows = rows.astype(_wide(rows.dtype))
        n = jnp.sum(weight)
        mean = weight @ rows / jnp.maximum(n, 1.0)
        mean = mean + weight @ (rows - mean) / jnp.maximum(n, 1.0)  # its round-off
        away = (rows - mean) * weight[:, None]
        return self.merge(acc, _Moments(n, mean, away.T @ jnp.conj(away)))

    def merge(self, acc: _Moments, other: _Moments) -> _Moments:
        """Two sets of moments as one."""
        n = acc.n + other.n
        share = other.n / jnp.maximum(n, 1.0)
        gap = other.mean - acc.mean
        return _Moments(n, acc.mean + share * gap, acc.m2 + other.m2 + acc.n * share * jnp.outer(gap, jnp.conj(gap)))

    def result(self, acc: _Moments) -> dict[str, Array]:
        """Mean and unbiased covariance."""
        return {"mean": acc.mean, "covariance": acc.m2 / jnp.maximum(acc.n - 1.0, 1.0)}


class Quantiles(eqx.Module):
    """Quantiles of every saved entry, from a histogram: `{"quantiles", "outside"}`.

    - `q`: the probabilities; `quantiles` has an axis for them, after that of saved times.
    - `low`, `high`: where the histogram begins and ends, for all entries or one by one (an array of their shape).
    - `bins`: how many bins; a quantile is right to within one bin, (high − low)/bins.

    `outside` is the share of members outside of the histogram, which count as −∞ below and +∞ above; what is not a
    number counts as above.
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
        """Count the members of a tile."""

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
        """Where the share q of the members lies below, interpolated within its bin."""

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
    """Several reducers at once, by name: what `ensemble(reduce={"mean": Mean(), "spread": Quantiles(...)})` makes."""

    reducers: dict[str, Any]

    def init(self, x: PyTree) -> dict[str, PyTree]:
        """Each its own."""
        return {name: r.init(x) for name, r in self.reducers.items()}

    def update(self, acc: dict[str, PyTree], x: PyTree, weight: Float[Array, " members"]) -> dict[str, PyTree]:
        """Each its own."""
        return {name: r.update(acc[name], x, weight) for name, r in self.reducers.items()}

    def merge(self, acc: dict[str, PyTree], other: dict[str, PyTree]) -> dict[str, PyTree]:
        """Each its own."""
        return {name: r.merge(acc[name], other[name]) for name, r in self.reducers.items()}

    def result(self, acc: dict[str, PyTree]) -> dict[str, PyTree]:
        """What each makes of it, by name."""
        return {name: r.result(acc[name]) for name, r in self.reducers.items()}


def as_reducer(reduce: Any) -> Any:
    """The reducer that was given, or several of them in a dict as one; raises if it is none."""
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
    return reduce
