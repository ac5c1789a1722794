"""The rules of the third evaluation, primitive by primitive, by NumPy and SciPy (see `numpy_jaxpr`)."""

import operator

import numpy as np
import scipy.linalg
import scipy.special
from jax.lax import GatherScatterMode


class Unsupported(NotImplementedError):
    """A primitive without a rule here."""


# Element by element.


def _whole(how):
    """An operation on two whole numbers, by Python's own of any size; what comes out wraps around."""

    def rule(x, y):
        bits, signed = 8 * x.dtype.itemsize, x.dtype.kind == "i"
        wrap = lambda n: (n + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) if signed else n % 2**bits
        out = [wrap(how(int(a), int(b), bits)) for a, b in zip(x.flat, y.flat, strict=True)]
        return np.array(out, x.dtype).reshape(x.shape)

    return rule


def _quotient(a, b, bits):
    """Towards zero; −1 of what is divided by zero."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _rest(a, b, bits):
    return a if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


def _shift_left(a, b, bits):
    return a << b if 0 <= b < bits else 0


def _shift_arithmetic(a, b, bits):
    a = a - 2**bits if a >= 2 ** (bits - 1) else a
    return a >> (b if 0 <= b < bits else bits - 1)


def _shift_logical(a, b, bits):
    return a % 2**bits >> b if 0 <= b < bits else 0


def _by_kind(whole, real):
    return lambda x, y: whole(x, y) if x.dtype.kind in "iu" else real(x, y)


def _clz(x):
    bits = 8 * x.dtype.itemsize
    return np.array([bits - (int(n) % 2**bits).bit_length() for n in x.flat]).reshape(x.shape)


def _sign(x):
    return x / np.where(x == 0, 1, np.abs(x)) if x.dtype.kind == "c" else np.sign(x)


def _complex(x, y):
    out = np.empty(x.shape, np.result_type(x, np.complex64))
    out.real, out.imag = x, y
    return out


def _larger(x, y):
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x, y)) if x.dtype.kind == "f" else np.maximum(x, y)


def _logistic(x):
    return np.asarray(1.0, x.dtype) / (1 + np.exp(-x))


ELEMENTWISE = {
    **{name: getattr(np, name) for name in "sin cos tan tanh sinh cosh exp exp2 expm1 log log1p sqrt cbrt".split()},
    **{name: getattr(np, name) for name in "floor ceil square real imag conj nextafter abs".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    **{"atan2": np.arctan2, "neg": np.negative, "is_finite": np.isfinite, "pow": np.power, "max": _larger},
    **{"min": np.minimum, "sign": _sign, "logistic": _logistic, "rsqrt": lambda x: 1 / np.sqrt(x)},
    **{"erf": scipy.special.erf, "erfc": scipy.special.erfc, "erf_inv": scipy.special.erfinv},
    **{"lgamma": scipy.special.gammaln, "digamma": scipy.special.psi},
    **{name: getattr(operator, name) for name in "eq ne lt le gt ge sub mul add".split()},
    **{
        "add_any": operator.add,
        "div": _by_kind(_whole(_quotient), np.divide),
        "rem": _by_kind(_whole(_rest), np.fmod),
        "complex": _complex,
    },
    **{"and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": np.invert},
    **{"shift_left": _whole(_shift_left), "shift_right_arithmetic": _whole(_shift_arithmetic)},
    **{"shift_right_logical": _whole(_shift_logical), "clz": _clz, "copy": np.copy, "copy_p": np.copy},
    "population_count": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "one_minus_square": lambda x: 1 - x * x,
    "lt_to": lambda x, y: _rank(x) < _rank(y),
    "le_to": lambda x, y: _rank(x) <= _rank(y),
    "eq_to": lambda x, y: _rank(x) == _rank(y),
}


# Arrays.


def _convert(params, aval, x):
    new = np.dtype(aval.dtype)
    if x.dtype.kind == "c" and new.kind != "c":
        return x.real.astype(new)
    if x.dtype.kind == "f" and new.kind in "iu":
        info = np.iinfo(new)
        of = lambda y: 0 if np.isnan(y) else info.max if y >= info.max else info.min if y <= info.min else int(y)
        return np.array([of(y) for y in x.flat], new).reshape(x.shape)
    return x != 0 if new.kind == "b" else x.astype(new)


def _broadcast(params, aval, x, *_):
    inner = [1] * len(aval.shape)
    for axis, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        inner[axis] = size
    return np.broadcast_to(x.reshape(inner), aval.shape)


def _slice(params, aval, x):
    strides = params["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]


def _pad(params, aval, x, value):
    """Element by element, so that negative and interior padding need no cases."""
    out = np.full(aval.shape, value)
    for at in np.ndindex(*x.shape):
        to = tuple(low + i * (inside + 1) for i, (low, _, inside) in zip(at, params["padding_config"], strict=True))
        if all(0 <= i < n for i, n in zip(to, aval.shape, strict=True)):
            out[to] = x[at]
    return out


def _select_n(params, aval, which, *cases):
    which = np.broadcast_to(which, aval.shape).astype(int)
    return np.choose(which, cases) if len(cases) < 30 else np.stack(cases)[which, *np.indices(aval.shape)]


def _dot(params, aval, a, b):
    (ca, cb), (ba, bb) = params["dimension_numbers"]
    names_a, names_b = list(range(a.ndim)), list(range(50, 50 + b.ndim))
    for i, j in zip((*ca, *ba), (*cb, *bb), strict=True):
        names_b[j] = names_a[i]
    free = [names_a[i] for i in range(a.ndim) if i not in (*ca, *ba)]
    out = [*(names_a[i] for i in ba), *free, *(names_b[j] for j in range(b.ndim) if j not in (*cb, *bb))]
    letter = {n: chr(97 + k) for k, n in enumerate(dict.fromkeys([*names_a, *names_b]))}
    spell = lambda names: "".join(letter[n] for n in names)
    return np.einsum(f"{spell(names_a)},{spell(names_b)}->{spell(out)}", a.astype(aval.dtype), b.astype(aval.dtype))


def _reduction(how):
    return lambda params, aval, x: how(x, axis=tuple(params["axes"]))


def _rank(x):
    """Whole numbers in the order of all floating-point numbers: −NaN, −∞, …, −0, 0, …, ∞, NaN."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, ~bits ^ np.iinfo(bits.dtype).min, bits)


def _extreme(how):
    return lambda params, aval, x: how(x, axis=params["axes"][0])


def _cumulative(how):
    def rule(params, aval, x):
        axis = params["axis"]
        x = np.flip(x, axis) if params["reverse"] else x
        out = how.accumulate(x, axis=axis, **({"dtype": x.dtype} if how in (np.add, np.multiply) else {}))
        return np.flip(out, axis) if params["reverse"] else out

    return rule


def _sort(params, aval, *xs):
    axis, keys = params["dimension"], params["num_keys"]
    rows = [np.moveaxis(x, axis, 0).copy() for x in xs]
    for at in np.ndindex(*rows[0].shape[1:]):
        columns = [r[(slice(None), *at)].copy() for r in rows]
        order = np.lexsort([c + np.zeros((), c.dtype) for c in columns[:keys]][::-1])  # −0 + 0 is 0
        for r, c in zip(rows, columns, strict=True):
            r[(slice(None), *at)] = c[order]
    return [np.moveaxis(r, 0, axis) for r in rows]


def _top_k(params, aval, x):
    order = np.argsort(-x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]


def _bounded(start, x, sizes):
    """The start of a window as whole numbers, moved inside."""
    return [int(np.clip(int(i), 0, n - size)) for i, n, size in zip(start, x.shape, sizes, strict=True)]


def _window(start, sizes):
    return tuple(slice(i, i + n) for i, n in zip(start, sizes, strict=True))


def _dynamic_slice(params, aval, x, *start):
    return x[_window(_bounded(start, x, aval.shape), aval.shape)]


def _dynamic_update_slice(params, aval, x, new, *start):
    out = x.copy()
    out[_window(_bounded(start, x, new.shape), new.shape)] = new
    return out


def _places(indices, starts, batch, batch_indices, ndim):
    """For each row of indices: its place among the rows, and the start of its window."""
    for at in np.ndindex(*indices.shape[:-1]):
        start = [0] * ndim
        for axis, i in zip(starts, indices[at], strict=True):
            start[axis] = int(i)
        for axis, along in zip(batch, batch_indices, strict=True):
            start[axis] = at[along]
        yield at, start


def _gather(params, aval, x, indices):
    dims, mode = params["dimension_numbers"], GatherScatterMode.from_any(params["mode"])
    sizes, out = params["slice_sizes"], np.zeros(aval.shape, x.dtype)
    fill = _fill(params["fill_value"], x.dtype)
    lost = tuple(sorted((*dims.collapsed_slice_dims, *dims.operand_batching_dims)))
    batch = dims.operand_batching_dims, dims.start_indices_batching_dims
    for at, start in _places(indices, dims.start_index_map, *batch, x.ndim):
        inside = _bounded(start, x, sizes)
        window = x[_window(inside, sizes)].squeeze(lost)
        if mode == GatherScatterMode.FILL_OR_DROP and inside != start:
            window = np.full(window.shape, fill)
        rest = iter(at)
        out[tuple(slice(None) if k in dims.offset_dims else next(rest) for k in range(out.ndim))] = window
    return out


def _fill(value, dtype):
    if value is not None:
        return value
    if dtype.kind in "fc":
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def _scatter(how):
    def rule(params, aval, x, indices, updates):
        dims, mode = params["dimension_numbers"], GatherScatterMode.from_any(params["mode"])
        lost, out = (*dims.inserted_window_dims, *dims.operand_batching_dims), x.copy()
        widths = iter(updates.shape[k] for k in dims.update_window_dims)
        sizes = [1 if k in lost else next(widths) for k in range(x.ndim)]
        batch = dims.operand_batching_dims, dims.scatter_indices_batching_dims
        for at, start in _places(indices, dims.scatter_dims_to_operand_dims, *batch, x.ndim):
            inside, rest = _bounded(start, x, sizes), iter(at)
            if mode != GatherScatterMode.CLIP and inside != start:
                continue
            new = updates[
                tuple(slice(None) if k in dims.update_window_dims else next(rest) for k in range(updates.ndim))
            ]
            window = _window(inside, sizes)
            new = new.reshape(sizes)
            out[window] = new if how is None else how(out[window], new)
        return out

    return rule


def _triangular_solve(params, aval, a, b):
    lower = params["lower"]
    if a.ndim > 2:
        each = [_triangular_solve(params, None, *ab) for ab in zip(a, b, strict=True)]
        return np.stack(each)
    a = np.tril(a) if lower else np.triu(a)
    a = a - np.diag(np.diag(a)) + np.eye(len(a)) if params["unit_diagonal"] else a
    a = a.T if params["transpose_a"] else a
    a = a.conj() if params["conjugate_a"] else a
    return np.linalg.solve(a, b) if params["left_side"] else np.linalg.solve(a.T, b.T).T


def _lu(params, aval, a):
    if a.ndim > 2:
        return [np.stack(parts) for parts in zip(*(_lu(params, None, x) for x in a), strict=True)]
    lu, pivots = scipy.linalg.lu_factor(a)
    order = np.arange(len(a))
    for k, p in enumerate(pivots):
        order[[k, p]] = order[[p, k]]
    return [lu, pivots, order]


def _fft(params, aval, x):
    kind, axes = str(params["fft_type"]).split(".")[-1].lower(), range(-len(params["fft_lengths"]), 0)
    name = {"0": "fft", "1": "ifft", "2": "rfft", "3": "irfft"}.get(kind, kind)
    more = {"s": params["fft_lengths"]} if name == "irfft" else {}
    return getattr(np.fft, f"{name}n")(x, axes=list(axes), **more)


def _reduce_precision(params, aval, x):
    if (params["exponent_bits"], params["mantissa_bits"]) == (8, 23):
        return x.astype(np.float32)
    if params["exponent_bits"] < 11:
        raise Unsupported("reduce_precision")
    part, exponent = np.frexp(x)
    scale = 2.0 ** (params["mantissa_bits"] + 1)
    return np.ldexp(np.rint(part * scale) / scale, exponent)


def _round(params, aval, x):
    return np.rint(x) if int(params["rounding_method"]) == 1 else np.sign(x) * np.floor(np.abs(x) + 0.5)


def _polynomial(params, aval, x, *coefficients):
    return np.polynomial.polynomial.polyval(x, np.array(coefficients))


def _iota(params, aval):
    shape = [-1 if k == params["dimension"] else 1 for k in range(len(aval.shape))]
    return np.broadcast_to(np.arange(aval.shape[params["dimension"]]).reshape(shape), aval.shape)


def _unstack(params, aval, x):
    return list(np.moveaxis(x, params["axis"], 0))


_UPDATES = {"": None, "_add": np.add, "_sub": np.subtract, "_mul": np.multiply, "_min": np.minimum, "_max": np.maximum}
MOVES = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, aval, *xs: np.concatenate(xs, params["dimension"]),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "expand_dims": lambda params, aval, x: x.reshape(aval.shape),
    "gather": _gather,
    "iota": _iota,
    "name": lambda params, aval, x: x,
    "optimization_barrier": lambda params, aval, *xs: list(xs),
    "pad": _pad,
    "reshape": lambda params, aval, x: x.reshape(aval.shape),
    "rev": lambda params, aval, x: np.flip(x, params["dimensions"]),
    "select_n": _select_n,
    "slice": _slice,
    "sort": _sort,
    "split": lambda params, aval, x: np.split(x, np.cumsum(params["sizes"])[:-1], params["axis"]),
    "squeeze": lambda params, aval, x: x.reshape(aval.shape),
    "stack": lambda params, aval, *xs: np.stack(xs, params["axis"]),
    "stop_gradient": lambda params, aval, *xs: list(xs),
    "tile": lambda params, aval, x: np.tile(x, params["reps"]),
    "top_k": _top_k,
    "transpose": lambda params, aval, x: x.transpose(params["permutation"]),
    "unstack": _unstack,
    **{f"scatter{name}": _scatter(how) for name, how in _UPDATES.items()},
    **{f"scatter{name.replace('_', '-')}": _scatter(how) for name, how in _UPDATES.items()},
}
RULES = {
    **MOVES,
    "argmax": _extreme(np.argmax),
    "argmin": _extreme(np.argmin),
    "bitcast_convert_type": lambda params, aval, x: np.ascontiguousarray(x).view(aval.dtype).reshape(aval.shape),
    "cholesky": lambda params, aval, x: np.linalg.cholesky(x),
    "convert_element_type": _convert,
    "cumlogsumexp": _cumulative(np.logaddexp),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "cumprod": _cumulative(np.multiply),
    "cumsum": _cumulative(np.add),
    "dot_general": _dot,
    "empty": lambda params, aval: np.zeros(aval.shape),
    "platform_index": lambda params, aval: np.int32(0),
    "empty2": lambda params, aval: np.zeros(aval.shape),
    "fft": _fft,
    "integer_pow": lambda params, aval, x: x ** params["y"] if params["y"] >= 0 else 1 / x ** -params["y"],
    "lu": _lu,
    "polynomial": _polynomial,
    "reduce_precision": _reduce_precision,
    "round": _round,
    "triangular_solve": _triangular_solve,
    "reduce_and": _reduction(np.bitwise_and.reduce),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "reduce_or": _reduction(np.bitwise_or.reduce),
    "reduce_prod": _reduction(lambda x, axis: np.prod(x, axis=axis, dtype=x.dtype)),
    "reduce_sum": _reduction(lambda x, axis: np.sum(x, axis=axis, dtype=x.dtype)),
    "reduce_xor": _reduction(np.bitwise_xor.reduce),
}
# Exact: no round-off. Derivatives look for the results of some of these among the arguments.
EXACT = {*MOVES, "max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "copy", "copy_p", "neg", "abs"}
EXACT |= {"floor", "ceil", "round", "sign", "real", "imag", "complex", "conj"}
