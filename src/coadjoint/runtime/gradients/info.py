"""How the last gradient of this process was computed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GradientInfo:
    """How a gradient through a run is computed.

    Parameters
    ----------
    backend : {"native", "xla"}
        "native" if machine code computes the adjoint of every step, "xla" if XLA differentiates a scan.
    reason : str
        The reason why the adjoint is not native; empty if it is.
    saved_bytes : int, default 0
        The memory that the forward pass saves for the adjoint, per member of a batch in bytes.
    checkpoint_every : int, default 0
        The number of steps between two checkpoints; 0 if the forward pass saves all steps.
    """

    backend: str
    reason: str = ""
    saved_bytes: int = 0
    checkpoint_every: int = 0


_last: list[GradientInfo] = []
_reasons = ["", "JAX compiled the run for another device than the CPU, and XLA computes it as a scan."]
ELSEWHERE = 1  # the code of the last of these


def last_gradient_info() -> GradientInfo | None:
    """Return how the gradient that JAX traced last is computed; None if there was none.

    JAX traces a function once and may run it many times. A compiled function that runs again changes nothing here.

    Returns
    -------
    GradientInfo or None
        The backend, the reason if the adjoint is not native, and the memory for the adjoint.

    Examples
    --------
    >>> import jax
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body(alpha=None)
    >>> energy = lambda mu0: cj.solve(system, mu0, t1=0.1, dt=0.01).mu[-1, 0]
    >>> gradient = jax.grad(energy)(mu0)
    >>> cj.last_gradient_info().backend
    'native'
    """
    return _last[-1] if _last else None


def note_gradient(info: GradientInfo) -> None:
    """Record how a gradient is computed."""
    _last[:] = [info]


def code_of(reason: str) -> int:
    """Return the number of a reason for which XLA computes a run; 0 is native code.

    A run that JAX compiles returns this number. Its code may be selected after its results have got their type.
    """
    if reason not in _reasons:
        _reasons.append(reason)
    return _reasons.index(reason)


def reason_of(code: int) -> str:
    """Return the reason with this number; it may be from another process."""
    return _reasons[code] if code < len(_reasons) else "Native code could not be made when JAX compiled the run."
