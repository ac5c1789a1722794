"""SALT noise of fluids: many fields. Only their sum is formed as a matrix."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.device_arrays import to_device

from ..noises import Noise, Stirring, salt
from ..numerics import validation
from .large_sphere import SparseDegrees
from .sphere import index
from .surface import Matrix, Surface
from .torus import SparseModes, Torus, wavenumbers

_STACKED = 2**16  # numbers in matrices of noise up to which they are formed one by one


class ModeNoise(Noise):
    """Stream functions −ζ_i with a few coefficients each. Only the sum Σ_i ζ_i dS^i is formed as a matrix."""

    surface: Surface
    size: int = eqx.field(static=True)
    at: Array  # (M, r): where in the flattened coefficients …
    real: Array  # … and the values there
    imaginary: Array | None
    sparse: SparseModes | SparseDegrees | None = eqx.field(default=None, metadata={"made": True})  # from these
    additive: bool = eqx.field(default=True, static=True, init=False)

    def apply(self, mu: Any, dS: Float[Array, " M"], params: PyTree = None) -> Matrix:
        """The matrix of rate Σ_i ζ_i dS^i; real and imaginary parts apart, for complex scatters are slow on GPUs."""

        def coefficients(at: Array, size: int) -> Array:
            total = lambda values: _total(size, at, values, dS)
            return total(self.real) if self.imaginary is None else total(self.real) + 1j * total(self.imaginary)

        if self.sparse is not None:
            return _moving(self.surface, self.sparse.matrix(coefficients))
        shape = self.surface.shape
        return _moving(self.surface, self.surface.matrix(coefficients(self.at, int(np.prod(shape))).reshape(shape)))


@partial(jax.jit, static_argnums=0)
def _total(size: int, at: Array, values: Array, dS: Float[Array, " M"]) -> Array:
    """Σ_i dS^i times the values of field i, at their positions."""
    return jnp.zeros(size).at[at].add(dS[:, None] * values, mode="drop")


class FieldNoise(Noise):
    """Stream functions −ζ_i of any form, by their coefficients."""

    surface: Surface
    size: int = eqx.field(static=True)
    coefficients: Array  # (M, *shape)
    additive: bool = eqx.field(default=True, static=True, init=False)

    def apply(self, mu: Any, dS: Float[Array, " M"], params: PyTree = None) -> Matrix:
        """The matrix of rate Σ_i ζ_i dS^i."""
        return _moving(self.surface, self.surface.matrix(jnp.tensordot(dS, self.coefficients, axes=1)))


def _moving(surface: Surface, W: Matrix) -> Matrix:
    """The element of the algebra that moves a field as the stream function −ζ does, from the matrix of ζ."""
    return W if surface.rate == 1.0 else surface.rate * W


def fluid_noise(surface: Surface, modes: Any, amplitude: Any, shells: Any, fields: Any) -> list[Any]:
    """The noise of a model: on modes, on all modes of shells, or by given fields."""
    if fields is not None:
        return [_given(surface, fields)]
    if shells is not None:
        pairs, amplitude = _of_shells(surface, shells, amplitude)
    elif modes is not None and len(modes):
        pairs = _pairs(surface, modes)
    else:
        return []
    many = len(pairs) * surface.n**2 > _STACKED
    noise = _on_modes(surface, pairs, _amplitudes(surface, pairs, amplitude), many)
    if many:
        return [noise]
    fields = [noise.apply(None, to_device(row)) for row in np.eye(len(pairs))]
    return [salt(jnp.stack(fields) if validation.is_traced(amplitude) else to_device(np.stack(fields)))]


def white_stirring(surface: Surface, shells: Any, amplitude: Any) -> list[Any]:
    """Fields of vorticity on all modes of shells, added to the state with white noise."""
    if shells is None:
        return []
    pairs, amplitudes = _of_shells(surface, shells, amplitude, "stirring")
    fields = _on_modes(surface, pairs, to_device(amplitudes))
    return [Stirring(size=len(pairs), fields=fields, factor=1.0 / surface.rate)]


def _pairs(surface: Surface, modes: Any) -> list[tuple[int, int]]:
    try:
        pairs = [tuple(int(x) for x in mode) for mode in modes]
        exact = all(len(p) == 2 and tuple(m) == p for p, m in zip(pairs, modes, strict=True))
    except (TypeError, ValueError):
        exact, pairs = False, []
    if not exact:
        raise ValueError(f"noise_modes must be pairs of whole numbers such as ((1, 1), (1, -1)), not {modes!r}.")
    n, K = surface.n, surface.n // 2
    for a, b in pairs:
        if isinstance(surface, Torus) and ((a, b) == (0, 0) or max(abs(a), abs(b)) > K):
            raise ValueError(f"noise_modes: ({a}, {b}) is not a mode of n = {n}: entries in [{-K}, {K}], not both 0.")
        if not isinstance(surface, Torus) and not (1 <= a < n and abs(b) <= a):
            raise ValueError(f"noise_modes: ({a}, {b}) is no (l, m) of n = {n}: l in [1, {n - 1}], |m| at most l.")
    return pairs  # type: ignore[return-value]


def _amplitudes(surface: Surface, pairs: list[tuple[int, int]], amplitude: Any) -> Array:
    """One amplitude per mode. Raises if two modes make the same field."""
    if validation.is_traced(amplitude):
        return jnp.broadcast_to(jnp.asarray(amplitude), (len(pairs),))
    torus = isinstance(surface, Torus)
    try:
        given = np.asarray(amplitude)
    except ValueError:
        given = np.asarray(None)
    if given.dtype.kind not in ("fiuc" if torus else "fiu") or not np.all(np.isfinite(given)):
        kind = "a finite number, real or complex," if torus else "a finite real number,"
        raise ValueError(f"amplitude must be {kind} or one per mode, not {amplitude!r}.")
    if given.shape not in ((), (len(pairs),)):
        raise ValueError(
            f"amplitude must be one number, or one for each of the {len(pairs)} noise_modes, not of shape "
            f"{given.shape}."
        )
    given = np.broadcast_to(given if given.dtype.kind == "c" else given.astype(float), (len(pairs),))
    seen: dict[tuple[int, ...], list[tuple[tuple[int, ...], complex]]] = {}
    for pair, a in zip(pairs, given, strict=True):
        mode = pair
        if torus:
            opposite = (-pair[0], -pair[1])
            mode, a = (pair, a) if pair >= opposite else (opposite, np.conj(a))
        for other, b in seen.setdefault(mode, []):
            if abs((a * np.conj(b)).imag) <= 1e-12 * abs(a * b):
                hint = ", or give them amplitudes of different phase, such as 0.1 and 0.1j" if torus else ""
                raise ValueError(f"noise_modes: {other} and {pair} make the same field: leave one out{hint}.")
        seen[mode].append((pair, a))
    return to_device(given)


def _on_modes(surface: Surface, pairs: list[tuple[int, int]], amplitudes: Array, many: bool = True) -> ModeNoise:
    n = surface.n
    given: Any = amplitudes
    if not isinstance(surface, Torus):
        at = np.array([[index(l, m)] for l, m in pairs])
        real = given[:, None] if validation.is_traced(given) else to_device(np.asarray(given)[:, None])
        options = {"surface": surface, "at": to_device(at), "sparse": surface.sparse_modes(at)}
        return ModeNoise(size=len(pairs), real=real, imaginary=None, **options)
    at = np.array([[a % n * n + b % n, -a % n * n + -b % n] for a, b in pairs])
    if validation.is_traced(amplitudes):
        real = jnp.repeat(amplitudes.real[:, None], 2, axis=1)
    else:  # without a program for each operation
        given = np.asarray(amplitudes)
        real = to_device(np.repeat(given.real[:, None], 2, axis=1))
    imaginary = jnp.asarray(given.imag[:, None] * np.array([1.0, -1.0])) if jnp.iscomplexobj(given) else None
    sparse = surface.sparse_modes(at) if many else None
    return ModeNoise(size=len(pairs), surface=surface, at=to_device(at), real=real, imaginary=imaginary, sparse=sparse)


def _of_shells(
    surface: Surface, shells: Any, amplitude: Any, what: str = "noise"
) -> tuple[list[tuple[int, int]], np.ndarray]:
    """All modes of the shells k₁ … k₂, each with the amplitude of its shell; on the torus cosine and sine."""
    try:
        first, last = (validation.count("shells", k) for k in shells)
    except (TypeError, ValueError):
        raise ValueError(
            f"noise_shells must be two whole numbers, the first shell and the last, not {shells!r}."
        ) from None
    largest = surface.n // 2 if isinstance(surface, Torus) else surface.n - 1
    if not first <= last <= largest:
        raise ValueError(f"{what}_shells must be (k1, k2) with 1 <= k1 <= k2 <= {largest}, not {shells!r}.")
    sizes = np.asarray(amplitude, float) if not np.iscomplexobj(amplitude) else np.asarray(None)
    count = last - first + 1
    if sizes.dtype.kind != "f" or sizes.shape not in ((), (count,)) or not np.all(np.isfinite(sizes)):
        name = "amplitude" if what == "noise" else f"{what}_amplitude"
        raise ValueError(f"{name} must be one real number, or one for each of the {count} shells, not {amplitude!r}.")
    sizes = np.broadcast_to(sizes, (count,))
    if not isinstance(surface, Torus):
        pairs = [(l, m) for l in range(first, last + 1) for m in range(-l, l + 1)]
        return pairs, np.array([sizes[l - first] for l, _ in pairs])
    m = wavenumbers(surface.n)
    modes = [((int(m[i]), int(m[j])), k) for (i, j), k in np.ndenumerate(surface.shells) if first <= k <= last]
    found = [(pair, sizes[k - first]) for pair, k in modes if pair > (0, 0)]  # of opposite ones, one
    return [p for p, _ in found for _ in range(2)], np.array([a * phase for _, a in found for phase in (1, 1j)])


def _given(surface: Surface, fields: Any) -> Any:
    """Coefficients, or values on a grid: on the torus these are real, those complex."""
    try:
        array = np.asarray(fields)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiuc" or array.ndim < 2 or not len(array):
        raise ValueError("noise_fields must be a stack of fields, as coefficients or as values on a grid.")
    torus = isinstance(surface, Torus)
    as_values = array.dtype.kind != "c" if torus else array.ndim == 3
    take = surface.from_values if as_values else lambda x, name: surface.check(name, x)
    stack = to_device(np.stack([take(field, name=f"noise_fields[{i}]") for i, field in enumerate(array)]))
    if surface.large:  # a program that made them matrices would need the tables
        return salt(_moving(surface, surface.matrix(stack)))
    return FieldNoise(size=len(stack), surface=surface, coefficients=stack)
