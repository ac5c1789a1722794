"""Stacks of states: the quick tests and the corrections of many are those of one."""

import numpy as np
import pytest

import coadjoint as cj

RNG = np.random.default_rng(0)


def skew(members, n):
    """Skew-Hermitian matrices, with a trace."""
    x = RNG.standard_normal((members, n, n)) + 1j * RNG.standard_normal((members, n, n))
    return x - x.conj().swapaxes(1, 2)


def nearest(mu, n):
    """½(μ − μᴴ) without the trace, of one state."""
    mu = 0.5 * (mu - mu.conj().T)
    trace = float(np.imag(np.trace(mu)))
    if abs(trace) > np.finfo(float).eps * np.sqrt(np.vdot(mu, mu).real):
        np.einsum("ii->i", mu)[:] -= 1j * trace / n
    return mu


@pytest.mark.parametrize("n", [2, 3, 9, 33])
def test_nearest_states_have_the_bits_of_nearest_single_ones(n):
    algebra, x = cj.SU(n), skew(7, n)
    traceless = x - np.trace(x, axis1=1, axis2=2)[:, None, None] * np.eye(n) / n
    for stack in (x, traceless, algebra.nearest_states(x), np.concatenate([x, algebra.nearest_states(traceless)])):
        assert algebra.nearest_states(stack).tobytes() == np.stack([nearest(mu, n) for mu in stack]).tobytes()


@pytest.mark.parametrize("n", [2, 9])
def test_a_stack_with_one_wrong_matrix_is_no_stack_of_states(n):
    algebra, x = cj.SU(n), cj.SU(n).nearest_states(skew(5, n))
    assert algebra.are_states(x)
    for wrong in (1j * x[2], x[2] + 1e-6j * np.eye(n), x[2] + 1e-6 * np.eye(n)):
        assert algebra.state_error(wrong) is not None
        assert not algebra.are_states(np.concatenate([x, wrong[None]]))
    with pytest.raises(ValueError, match="mu0 is not a state of SU"):
        cj.ensemble(cj.System(algebra, lambda W: W[0, 0].imag), 1j * x, members=5, t1=0.1, dt=0.1)


def test_vectors_need_no_test():
    assert cj.SO3().are_states(np.ones((4, 3))) and not cj.Product(cj.SO3(), cj.SU(2)).are_states(np.ones((4, 6)))
