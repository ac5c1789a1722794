"""Why a program does not become native code, in the user's words."""

from typing import Any

_WORDS = {  # operations of JAX that users call by another name
    "cholesky": "Cholesky factorisations",
    "conv_general_dilated": "convolutions",
    "debug_callback": "`jax.debug.print` or `jax.debug.callback`",
    "eig": "eigenvalues of a matrix (`eig`)",
    "eigh": "eigenvalues of a Hermitian matrix (`eigh`)",
    "gather": "elements at computed indices",
    "householder_product": "QR factorisations",
    "io_callback": "`jax.experimental.io_callback`",
    "lu": "LU factorisations, as of `jnp.linalg.solve`, `inv` and `det`",
    "pure_callback": "`jax.pure_callback`",
    "qr": "QR factorisations",
    "schur": "Schur decompositions",
    "svd": "singular values of a matrix (`svd`)",
    "triangular_solve": "triangular systems of equations",
}


class NotCompilable(NotImplementedError):
    """The program cannot become native code. Its text is the reason: one or more sentences for the user."""

    @classmethod
    def operation(cls, name: str, of: str = "") -> "NotCompilable":
        """A JAX operation has no rule here, `of` some kind of numbers or arrays."""
        return cls(f"A step uses {_WORDS.get(name, f'the JAX operation `{name}`')}{of}, {_NOT}")

    @classmethod
    def dtype(cls, dtype: Any, where: str = "") -> "NotCompilable":
        """A type of numbers has no rule here."""
        return cls(f"A step uses numbers of type {dtype}{where}, {_NOT}")

    @classmethod
    def size(cls, limit: int) -> "NotCompilable":
        """The program is too long."""
        return TooLarge(
            f"The system is too large for native code: a step takes more than {limit} operations on single numbers."
        )


class TooLarge(NotCompilable):
    """The program takes too many operations on single numbers."""


_NOT = "which native code does not support."
