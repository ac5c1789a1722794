"""The primitives: a run, a run that saves what its adjoint reads, the tangent and the adjoint of a run.

    run      (x)        ↦ rows, totals          derivative: `tangent`, at what `taped` saves
    taped    (x)        ↦ rows, totals, tape
    tangent  (x, tape, δx) ↦ δrows              linear in δx; its transpose is `adjoint`
    adjoint  (x, tape, λ)  ↦ cotangents of x    linear in λ; its transpose is `tangent`
    second   (x, tape, λ, δx) ↦ derivative of `adjoint` along δx

x are numbers of the system, t0, dt, the first state and the path. On a CPU all are native. XLA computes them on other
devices, the derivative of `tangent` with respect to x, all of `second`, and that of `adjoint` along other inputs.

With `members`, results and the arguments whose flag is set have a leading axis of members. `vmap` adds members.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ..backends.base import NotSupported, attempt_native
from . import calls
from .info import GradientInfo, code_of, note_gradient
from .kernels import Variant, kernel, kernels_of, width_for
from .layout import count_words
from .program import N_TOTALS, Program, by_xla, shapes_of

run_p = jex.Primitive("coadjoint_run")
taped_p = jex.Primitive("coadjoint_run_taped")
tangent_p = jex.Primitive("coadjoint_tangent")
adjoint_p = jex.Primitive("coadjoint_adjoint")
second_p = jex.Primitive("coadjoint_second")


def trajectory(program: Program, args: Sequence[Array]) -> list[Array]:
    """The rows that a run saves after its start, and its totals."""
    return run_p.bind(*args, program=program, members=None, flags=(False,) * len(args))


# Derivatives.


def _still(t: Any) -> bool:
    return isinstance(t, ad.Zero) or t.dtype == jax.dtypes.float0


def _run_jvp(primals: Sequence, tangents: Sequence, *, program: Program, members: Any, flags: tuple) -> tuple:
    moving = tuple(not _still(t) for t in tangents)
    if not any(moving):
        out = run_p.bind(*primals, program=program, members=members, flags=flags)
        return out, [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out]
    variant = Variant(width_for(members), tuple(flags[: program.counts[0]]), moving)
    made = [kernel(program, variant, name) for name in ("adjoint", "taped")]
    reason = next((k.reason for k in made if isinstance(k, NotSupported)), "")
    if reason and program.adjoint == "native":
        raise ValueError(f'adjoint="native" is not possible for this run: {reason}')
    about = {"program": program, "members": members, "moving": moving}
    slopes = [t for t in tangents if not _still(t)]
    if reason:
        reason = f"{reason} XLA differentiates a scan instead."
        note_gradient(GradientInfo("xla", reason))
        along = lambda *moved: _mapped(_rows, about, flags)(*_placed(primals, moving, moved))
        some = [x for x, m in zip(primals, moving, strict=True) if m]
        out, rows = jax.jvp(along, some, slopes)
        return _because(reason, out), [*rows[:-N_TOTALS], *_zeros(out[-N_TOTALS:])]
    columns = kernels_of(program, variant).tape_columns
    keep = calls.segment_length(program, len(columns), members or 1)
    note_gradient(GradientInfo("native", "", _saved_bytes(program, keep, columns), keep))
    about |= {"keep": keep, "columns": columns}
    *out, tape = taped_p.bind(*primals, flags=flags, **about)
    by_member = members is not None
    given = (*flags, by_member, *(f for f, m in zip(flags, moving, strict=True) if m))
    rows = tangent_p.bind(*primals, tape, *slopes, flags=given, **about)
    return out, [*rows, *_zeros(out[-N_TOTALS:])]


def _because(reason: str, out: Sequence) -> list:
    """The results of a run that XLA computes for this reason."""
    return [*out[:-1], jnp.full_like(out[-1], code_of(reason))]


def _saved_bytes(program: Program, keep: int, columns: tuple) -> int:
    """Return the shapes that the forward pass saves for the adjoint."""
    if not keep:
        return 8 * program.steps * len(columns)
    return 8 * -(-program.steps // keep) * _checkpoint_words(program)


def _checkpoint_words(program: Program) -> int:
    """The words of a saved state: those of a step, and the totals of the kernel."""
    return count_words(jax.tree.leaves(program.state)) + N_TOTALS - 1


def _zeros(xs: Sequence) -> list:
    return [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in xs]


def _placed(values: Sequence, moving: Sequence[bool], moved: Sequence) -> list:
    """The values, with those that move replaced."""
    new = iter(moved)
    return [next(new) if m else x for x, m in zip(values, moving, strict=True)]


def _taped_jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    """A tape has no derivative: `tangent` and `adjoint` have those with respect to x."""
    out = taped_p.bind(*primals, **params)
    about = {name: params[name] for name in ("program", "members", "flags")}
    slopes = _run_jvp(primals, tangents, **about)[1]
    return out, [*slopes, *_zeros(out[-1:])]


def _linear_jvp(primitive: Any, plain: Callable) -> Callable:
    """The derivative of a function of x that is linear in its last arguments."""

    def rule(primals: Sequence, tangents: Sequence, *, flags: tuple, **about: Any) -> tuple:
        count = len(about["moving"])
        x, tape, linear = primals[:count], primals[count], primals[count + 1 :]
        out = primitive.bind(*primals, flags=flags, **about)
        dx, dlinear = tangents[:count], tangents[count + 1 :]
        total = None
        if any(not _still(t) for t in dlinear):
            along = [ad.instantiate_zeros(t) for t in dlinear]
            total = primitive.bind(*x, tape, *along, flags=flags, **about)
        moves = [not _still(t) for t in dx]
        if primitive is adjoint_p and _has_second(about, flags, moves):
            along = [ad.instantiate_zeros(t) for t, m in zip(dx, about["moving"], strict=True) if m]
            marks = *flags, *(f for f, m in zip(flags, about["moving"], strict=False) if m)
            more = second_p.bind(*x, tape, *linear, *along, flags=marks, **about)
            total = more if total is None else [a + b for a, b in zip(total, more, strict=True)]
        elif any(moves):
            some = lambda values: [v for v, m in zip(values, moves, strict=True) if m]
            own = {name: about[name] for name in ("program", "members", "moving")}
            given = (*flags[:count], *flags[count + 1 :])
            moved = lambda *new: _mapped(plain, own, given)(*_placed(x, moves, new), *linear)
            more = jax.jvp(moved, some(x), some(dx))[1]
            total = more if total is None else [a + b for a, b in zip(total, more, strict=True)]
        return out, _zeros(out) if total is None else total

    return rule


def _has_second(about: dict, flags: tuple, moves: Sequence[bool]) -> bool:
    """Whether native code computes the derivative of an adjoint along these inputs."""
    program, moving = about["program"], about["moving"]
    if not any(moves) or any(m and not a for m, a in zip(moves, moving, strict=True)):
        return False
    variant = Variant(width_for(about["members"]), tuple(flags[: program.counts[0]]), tuple(moving))
    made = [kernel(program, variant, name) for name in ("second", "tangent_taped")]
    return not any(isinstance(k, NotSupported) for k in made)


def _second_jvp(primals: Sequence, tangents: Sequence, *, flags: tuple, **about: Any) -> tuple:
    """By XLA."""
    count = len(about["moving"])
    own = {name: about[name] for name in ("program", "members", "moving")}
    plain = _mapped(_second_by_xla, own, (*flags[:count], *flags[count + 1 :]))
    moves = [not _still(t) for t in (*tangents[:count], *tangents[count + 1 :])]
    given = [*primals[:count], *primals[count + 1 :]]
    some = [x for x, m in zip(given, moves, strict=True) if m]
    along = [t for t in (*tangents[:count], *tangents[count + 1 :]) if not _still(t)]
    out = second_p.bind(*primals, flags=flags, **about)
    if not some:
        return out, _zeros(out)
    return out, jax.jvp(lambda *new: plain(*_placed(given, moves, new)), some, along)[1]


def _second_transpose(cts: Sequence, *args: Any, flags: tuple, **about: Any) -> list:
    """By XLA, in the cotangents or in the tangents."""
    count = len(about["moving"])
    own = {name: about[name] for name in ("program", "members", "moving")}
    plain = _mapped(_second_by_xla, own, (*flags[:count], *flags[count + 1 :]))
    given = [*args[:count], *args[count + 1 :]]
    linear = [ad.is_undefined_primal(x) for x in given]
    of = lambda *new: plain(*_placed(given, linear, new))
    back = jax.linear_transpose(of, *(x.aval for x, m in zip(given, linear, strict=True) if m))
    found = iter(back(list(map(ad.instantiate_zeros, cts))))
    out = [next(found) if m else None for m in linear]
    return [*out[:count], None, *out[count:]]


def _tangent_transpose(cts: Sequence, *args: Any, flags: tuple, **about: Any) -> list:
    """The adjoint; cotangents of shared arguments are summed over members."""
    count, members = len(about["moving"]), about["members"]
    given = (*flags[: count + 1], *[members is not None] * len(cts))
    out = adjoint_p.bind(*args[: count + 1], *map(ad.instantiate_zeros, cts), flags=given, **about)
    summed = lambda x, f: x if f or members is None else jnp.sum(x, axis=0)
    return [*[None] * (count + 1), *(summed(x, f) for x, f in zip(out, flags[count + 1 :], strict=True))]


def _adjoint_transpose(cts: Sequence, *args: Any, flags: tuple, **about: Any) -> list:
    """The tangent."""
    count, members = len(about["moving"]), about["members"]
    given = (*flags[: count + 1], *[members is not None] * len(cts))
    out = tangent_p.bind(*args[: count + 1], *map(ad.instantiate_zeros, cts), flags=given, **about)
    summed = lambda x, f: x if f or members is None else jnp.sum(x, axis=0)
    return [*[None] * (count + 1), *(summed(x, f) for x, f in zip(out, flags[count + 1 :], strict=True))]


# The same by XLA: functions of one member.


def _rows(program: Program, moving: Any, *args: Array) -> list:
    return by_xla(program, *args)


def _tangent_by_xla(program: Program, moving: Sequence[bool], *args: Array) -> list:
    x, slopes = args[: len(moving)], args[len(moving) :]
    rows = lambda *moved: by_xla(program, *_placed(x, moving, moved))[:-N_TOTALS]
    return jax.jvp(rows, [a for a, m in zip(x, moving, strict=True) if m], list(slopes))[1]


def _adjoint_by_xla(program: Program, moving: Sequence[bool], *args: Array) -> list:
    x, cts = args[: len(moving)], args[len(moving) :]
    rows = lambda *moved: by_xla(program, *_placed(x, moving, moved))[:-N_TOTALS]
    return list(jax.vjp(rows, *[a for a, m in zip(x, moving, strict=True) if m])[1](list(cts)))


def _second_by_xla(program: Program, moving: Sequence[bool], *args: Array) -> list:
    count, saved = len(moving), len(program.saved)
    x, cts, slopes = args[:count], args[count : count + saved], args[count + saved :]
    adjoint = lambda *moved: _adjoint_by_xla(program, moving, *_placed(x, moving, moved), *cts)
    return jax.jvp(adjoint, [a for a, m in zip(x, moving, strict=True) if m], list(slopes))[1]


def _mapped(plain: Callable, about: dict, flags: Sequence[bool]) -> Callable:
    """A function of one member as one of all."""
    one = partial(plain, about["program"], about["moving"])
    if about["members"] is None:
        return one
    if not any(flags):
        return lambda *args: [jnp.broadcast_to(x, (about["members"], *x.shape)) for x in one(*args)]
    return jax.vmap(one, [0 if f else None for f in flags])


# Shapes.


def _run_shapes(*avals: Any, program: Program, members: Any, **_: Any) -> list:
    return _led(shapes_of(program), members)


def _taped_shapes(*avals: Any, program: Program, members: Any, keep: int, columns: tuple, **_: Any) -> list:
    shape = (-(-program.steps // keep), _checkpoint_words(program)) if keep else (program.steps, len(columns))
    return _led([*shapes_of(program), jax.ShapeDtypeStruct(shape, jnp.int64)], members)


def _tangent_shapes(*avals: Any, program: Program, members: Any, **_: Any) -> list:
    return _led(shapes_of(program)[:-N_TOTALS], members)


def _adjoint_shapes(*avals: Any, members: Any, moving: tuple, flags: tuple, **_: Any) -> list:
    bare = lambda a, f: jax.ShapeDtypeStruct(a.shape[1:] if f else a.shape, a.dtype)
    return _led([bare(a, f) for a, f, m in zip(avals, flags, moving, strict=False) if m], members)


def _led(shapes: Sequence, members: int | None) -> list:
    lead = () if members is None else (members,)
    return [jax.core.ShapedArray((*lead, *s.shape), s.dtype) for s in shapes]


# Implementation on a CPU and on other devices.


def _run_natively(*args: Array, program: Program, members: Any, flags: tuple) -> list:
    moving = (False,) * len(args)
    return calls.run(program, members, calls.prepare(program, members, flags, moving, args))[0]


def _tape_natively(*args: Array, program: Program, members: Any, flags: tuple, moving: tuple, keep: int, **_) -> list:
    return calls.run_taped(program, members, calls.prepare(program, members, flags, moving, args), keep)


def _tape_elsewhere(*args: Array, flags: tuple, keep: int, columns: tuple, **about: Any) -> list:
    """On other devices nothing reads the tape."""
    out = _mapped(_rows, about, flags)(*args)
    tape = _taped_shapes(program=about["program"], members=about["members"], keep=keep, columns=columns)[-1]
    return [*out, jnp.zeros(tape.shape, tape.dtype)]


def _linear_natively(which: Callable) -> Callable:
    def computed(*args: Array, flags: tuple, program: Program, members: Any, moving: tuple, keep: int, columns: tuple):
        count = len(moving)
        given = calls.prepare(program, members, flags[:count], moving, args[:count])
        if given.kernels.tape_columns != columns:
            raise AssertionError("a tape that these kernels do not read")
        tape = args[count]
        if members is not None and not flags[count]:
            tape = jnp.broadcast_to(tape, (members, *tape.shape))
        return which(program, members, given, keep, tape, args[count + 1 :], flags[count + 1 :])

    return computed


def _tangent_call(program, members, given, keep, tape, slopes, flags) -> list:
    return calls.run_tangent(program, members, given, keep, tape, slopes, flags)


def _adjoint_call(program, members, given, keep, tape, cts, flags) -> list:
    cts = [
        x if f or members is None else jnp.broadcast_to(x, (members, *x.shape)) for x, f in zip(cts, flags, strict=True)
    ]
    return calls.single(members, calls.run_adjoint(program, members, given, keep, tape, cts))


def _second_call(program, members, given, keep, tape, linear, flags) -> list:
    saved = len(program.saved)
    cts = [
        x if f or members is None else jnp.broadcast_to(x, (members, *x.shape))
        for x, f in zip(linear[:saved], flags, strict=False)
    ]
    out = calls.run_second(program, members, given, keep, tape, cts, linear[saved:], flags[saved:])
    return calls.single(members, out)


def _linear_elsewhere(plain: Callable) -> Callable:
    def computed(*args: Array, flags: tuple, keep: int, columns: tuple, **about: Any) -> list:
        count = len(about["moving"])
        given = (*flags[:count], *flags[count + 1 :])
        return _mapped(plain, about, given)(*args[:count], *args[count + 1 :])

    return computed


def _run_elsewhere(*args: Array, program: Program, members: Any, flags: tuple) -> list:
    about = {"program": program, "members": members, "moving": ()}
    return _mapped(_rows, about, flags)(*args)


def _or_elsewhere(native: Callable, elsewhere: Callable, of_run: bool) -> Callable:
    """Native, or by XLA if no kernel is available."""

    def computed(*args: Array, **params: Any) -> list:
        found = attempt_native(partial(native, *args, **params))
        if not isinstance(found, NotSupported):
            return found
        program = params["program"]
        if program.adjoint == "native":
            raise ValueError(f'adjoint="native" is not possible for this run: {found.reason}') from found.cause
        reason = f"{found.reason} XLA computes the run as a scan instead."
        if not of_run:
            note_gradient(GradientInfo("xla", reason))
        out = elsewhere(*args, **params)
        return _because(reason, out) if of_run else out

    return computed


def _or_error(native: Callable) -> Callable:
    """A run whose tape is read has no other way: other code could not read it."""

    def computed(*args: Array, **params: Any) -> list:
        found = attempt_native(partial(native, *args, **params))
        if isinstance(found, NotSupported):
            raise ValueError(f'Native derivatives failed: {found.reason} Pass adjoint="xla".') from found.cause
        return found

    return computed


# Members.


def _batch(primitive: Any) -> Callable:
    def rule(args: Sequence, dims: Sequence, *, members: int | None, flags: tuple, **params: Any) -> tuple:
        """A new axis of members, before the one that there is."""
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        each = 1 if members is None else members

        def one(x: Array, d: int | None, flag: bool) -> tuple[Array, bool]:
            if d is None and not flag:
                return x, False
            x = jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
            if members is None:
                return x, True
            if not flag:
                x = jnp.broadcast_to(x[:, None], (size, each, *x.shape[1:]))
            return x.reshape(size * each, *x.shape[2:]), True

        moved, marks = zip(*map(one, args, dims, flags), strict=True)
        out = primitive.bind(*moved, members=size * each, flags=marks, **params)
        if members is not None:
            out = [x.reshape(size, each, *x.shape[1:]) for x in out]
        return out, [0] * len(out)

    return rule


def _define(primitive: Any, shapes: Callable, native: Callable, elsewhere: Callable) -> None:
    primitive.multiple_results = True
    primitive.def_abstract_eval(shapes)
    computed = _or_error(native) if primitive is taped_p else _or_elsewhere(native, elsewhere, primitive is run_p)
    compiled = jax.jit(lambda args, params: computed(*args, **dict(params)), static_argnums=1)
    primitive.def_impl(lambda *args, **params: compiled(args, tuple(sorted(params.items()))))
    mlir.register_lowering(primitive, mlir.lower_fun(elsewhere, multiple_results=True))
    mlir.register_lowering(primitive, mlir.lower_fun(computed, multiple_results=True), platform="cpu")
    batching.primitive_batchers[primitive] = _batch(primitive)


_define(run_p, _run_shapes, _run_natively, _run_elsewhere)
_define(taped_p, _taped_shapes, _tape_natively, _tape_elsewhere)
_define(tangent_p, _tangent_shapes, _linear_natively(_tangent_call), _linear_elsewhere(_tangent_by_xla))
_define(adjoint_p, _adjoint_shapes, _linear_natively(_adjoint_call), _linear_elsewhere(_adjoint_by_xla))
_define(second_p, _adjoint_shapes, _linear_natively(_second_call), _linear_elsewhere(_second_by_xla))
ad.primitive_jvps[run_p] = _run_jvp
ad.primitive_jvps[taped_p] = _taped_jvp
ad.primitive_jvps[tangent_p] = _linear_jvp(tangent_p, _tangent_by_xla)
ad.primitive_jvps[adjoint_p] = _linear_jvp(adjoint_p, _adjoint_by_xla)
ad.primitive_jvps[second_p] = _second_jvp
ad.primitive_transposes[second_p] = _second_transpose
ad.primitive_transposes[tangent_p] = _tangent_transpose
ad.primitive_transposes[adjoint_p] = _adjoint_transpose
