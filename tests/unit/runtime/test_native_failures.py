"""Whatever goes wrong while native code is made, XLA takes the run, with the reason; the user's errors stay his own."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from coadjoint.runtime.backends import (
    lattice_backend,
    native,
    native_reduction,
    path_sampling,
    site_kernel,
    step_kernels,
)
from stepcompiler import compile
from stepcompiler.lowering import control_flow_rules, evaluator, scalar_ops
from stepcompiler.targets import cpu, time_loop

RUN = {"mu0": np.array([0.3, -0.2, 0.5]), "t1": 0.04, "dt": 0.01, "integrator": cj.HeunMK()}
NUMBERS = count(5)  # powers: each test has a program of its own, which no cache holds


def system(**rest):
    """A system that is new to all caches."""
    power = next(NUMBERS)
    return cj.System(cj.SO3(), lambda m: jnp.sum(m**power * jnp.array([1.0, 0.5, 0.2])) + jnp.sin(m[0]), **rest)


class Injected(RuntimeError):
    pass


def broken(*_, **__):
    raise Injected("a fault of the test")


class Nameless:
    """An engine that finds no compiled code."""

    add_object_file = lambda self, code: None
    finalize_object = lambda self: None
    get_function_address = lambda self, name: 0


STAGES = {  # what goes wrong: where, and what it is called there
    "plan: which numbers are parameters": (step_kernels, "is_param"),
    "plan: how members stand side by side": (native, "width_of"),
    "plan: whether the path is drawn with the steps": (native, "drawn_with_steps"),
    "plan: the target": (native, "Cpu"),
    "plan: the program": (native, "NativeProgram"),
    "tracing": (compile, "without_complex"),
    "tracing: the size": (compile, "count_operations"),
    "lowering: a program": (evaluator, "lower_equation"),
    "lowering: an operation": (scalar_ops, "write"),
    "lowering: a branch": (control_flow_rules, "_plainly"),
    "lowering: the loop": (time_loop.Memory, "read"),
    "lowering: equal operations side by side": (time_loop, "packed"),
    "LLVM: the machine": (cpu, "_initialize"),
    "LLVM: the text": (cpu.llvm, "parse_assembly"),
    "LLVM: passes": (cpu.llvm, "create_pass_builder"),
    "LLVM: the compiler": (cpu.llvm, "create_mcjit_compiler"),
    "link": (cpu.ctypes, "CFUNCTYPE"),
    "numbers that all share": (step_kernels, "shared_inputs"),
    "the first call": (cpu.CpuExecutable, "run"),
}


@pytest.fixture
def fault(monkeypatch):
    """A fault at some place of native code; every cache is empty then."""

    monkeypatch.setenv("STEPCOMPILER_CACHE", "off")

    def at(stage, how=broken):
        where, name = STAGES[stage]
        monkeypatch.setattr(where, name, how)
        if name in ("_call", "packed"):
            monkeypatch.setitem(evaluator.RULES, "jit", how)

    return at


@pytest.fixture(scope="module")
def by_xla():
    return cj.solve(WITH_BRANCH, backend="xla", **RUN).mu


def branching(m):
    return jax.jit(lambda m: jnp.sum(m**4 * jnp.array([1.0, 0.5, 0.2])) + jnp.sin(m[0]))(m)


WITH_BRANCH = cj.System(cj.SO3(), branching)
REASON = "An error occurred while native code was made (Injected: a fault of the test)."
MESSAGE = f"{REASON} XLA computes the steps instead."


@pytest.mark.parametrize("stage", STAGES)
def test_xla_takes_over_at_every_stage(stage, fault, by_xla):
    """With the same numbers, and the reason in the statistics and in what is printed."""
    step_kernels._kernels.clear()
    step_kernels._marks.clear()
    cpu._initialize.cache_clear()
    fault(stage)
    sol = cj.solve(WITH_BRANCH, **RUN)
    assert (sol.stats.backend, sol.stats.reason) == ("xla", MESSAGE) and MESSAGE in repr(sol)
    np.testing.assert_array_equal(sol.mu, by_xla)
    step_kernels._kernels.clear()
    with pytest.raises(ValueError, match=r"backend='native' cannot take this run: .*a fault of the test") as error:
        cj.solve(WITH_BRANCH, backend="native", **RUN)
    assert isinstance(error.value.__cause__, Injected)


def test_code_that_is_not_found(monkeypatch, by_xla):
    """An address of 0 is not called."""
    step_kernels._kernels.clear()
    monkeypatch.setattr(cpu.llvm, "create_mcjit_compiler", lambda *_: Nameless())
    sol = cj.solve(WITH_BRANCH, **RUN)
    assert sol.stats.backend == "xla" and "LLVM found no compiled code" in sol.stats.reason
    np.testing.assert_array_equal(sol.mu, by_xla)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("stage", ["tracing", "LLVM: the text", "the first call", "plan: the target"])
def test_the_keyboard_and_a_lack_of_memory_end_the_run(stage, error, fault):
    def raised(*_, **__):
        raise error

    step_kernels._kernels.clear()
    fault(stage, raised)
    with pytest.raises(error):
        cj.solve(WITH_BRANCH, **RUN)


# Native code that is made during a run: others go on.


def test_a_thorough_kernel_that_fails(monkeypatch):
    """Hard steps are then taken by XLA."""
    body, mu0 = cj.models.rigid_body()
    run = {"t1": 24.0, "dt": 3.0, "key": 3}
    expected = cj.solve(body, mu0, backend="xla", **run)
    step_kernels._kernels.clear()
    make = step_kernels._make
    monkeypatch.setattr(step_kernels, "_make", lambda *args: broken() if args[4] else make(*args))
    sol = cj.solve(body, mu0, **run)
    assert sol.stats.backend == "native" and sol.stats.most_iterations > 30 and sol.stats.unsolved == 0
    np.testing.assert_allclose(sol.mu, expected.mu, atol=1e-11)
    step_kernels._kernels.clear()


@pytest.mark.parametrize("name", ["compile_step", "drawing"])
def test_a_path_that_native_code_cannot_draw(monkeypatch, name):
    """XLA draws the same numbers."""
    noisy, mu0 = cj.models.rigid_body()
    run = {"t1": 0.1, "dt": 0.01, "key": 0}
    expected = cj.solve(noisy, mu0, **run)
    path_sampling._loops.clear()
    monkeypatch.setattr(path_sampling, name, broken)
    sol = cj.solve(noisy, mu0, **run)
    path_sampling._loops.clear()
    assert sol.stats.backend == "native"
    np.testing.assert_allclose(sol.mu, expected.mu, atol=1e-14)


@pytest.mark.parametrize("where, name", [(native_reduction, "compile_step"), (native_reduction, "constants")])
def test_a_reducer_that_native_code_cannot_take(monkeypatch, where, name):
    """XLA takes the mean."""
    run = RUN | {"members": 8, "reduce": cj.Mean(), "mu0": np.random.default_rng(0).standard_normal((8, 3))}
    expected = cj.ensemble(WITH_BRANCH, **run)
    native_reduction._made.clear()
    monkeypatch.setattr(where, name, broken)
    found = cj.ensemble(WITH_BRANCH, **run)
    native_reduction._made.clear()
    assert found.stats.backend == "native"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), found.reduced, expected.reduced)


LATTICE = {
    "cutting": (site_kernel, "split_at_barriers"),
    "a sweep": (site_kernel, "Sweep"),
    "threads": (ThreadPoolExecutor, "map"),
    "the program": (lattice_backend, "LatticeProgram"),
}


@pytest.mark.parametrize("stage", LATTICE)
def test_a_large_lattice(stage, monkeypatch):
    """Sweeps that cannot be made leave the run to XLA."""
    tune(monkeypatch, native_operations=100, lattice_copies=12)
    step_kernels._kernels.clear()
    site_kernel._kernels.clear()
    chain = cj.System(cj.SO3() ** 16, lambda m: jnp.sum(m * jnp.roll(m, 3)) + 0.1 * jnp.sum(m**2))
    mu0 = np.random.default_rng(0).standard_normal(48)
    run = {"mu0": mu0, "t1": 0.02, "dt": 0.01, "integrator": cj.HeunMK()}
    expected = cj.solve(chain, backend="xla", **run)
    monkeypatch.setattr(*LATTICE[stage], broken)
    sol = cj.solve(chain, **run)
    assert sol.stats.backend == "xla" and "Injected: a fault of the test" in sol.stats.reason
    np.testing.assert_array_equal(sol.mu, expected.mu)
    step_kernels._kernels.clear()
    site_kernel._kernels.clear()


# Errors of the user's own program.


class Mine(cj.HeunMK):
    """A method with a fault of its own."""

    def step(self, system, mu, t, dt, dS, carry):
        raise ValueError("my own fault")


class Rotations(cj.SO3):
    """An algebra with a fault of its own."""

    def flow(self, sigma, mu):
        raise ZeroDivisionError("my algebra cannot turn")


@pytest.mark.parametrize("backend", ["auto", "xla"])
def test_errors_of_the_user_stay_his_own(backend):
    """They are raised as XLA meets them, not hidden in a reason."""
    with pytest.raises(ValueError, match="my own fault"):
        cj.solve(system(), **(RUN | {"integrator": Mine(), "backend": backend}))
    broken_algebra = cj.System(Rotations(), lambda m: jnp.sum(m**2))
    with pytest.raises(ZeroDivisionError, match="my algebra cannot turn"):
        cj.solve(broken_algebra, **(RUN | {"backend": backend}))
