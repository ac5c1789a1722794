"""stepcompiler: a traced JAX program as a compiled loop over time steps, for CPU and GPU.

Read in this order:

- `compile`: the entry point. `compile_step` compiles the loop over the steps of a JAX function;
- `kernel`: the signature of a step, the compiled kernel and the memory that it reads and writes (`words`);
- `hints`: primitives that state how a part of a program may be computed;
- `jaxprs`: tools that read, evaluate and transform traced programs; no LLVM;
- `lowering`: a traced program, number by number, as operations of LLVM:
  - `complex_lowering`: rewrites a program with complex numbers as one with real numbers;
  - `scalar_kinds`: a number is known at compile time, the same for all members, or varying;
  - `evaluator`: evaluates a traced program with the rules of `indexing_rules`, `reduction_rules`,
    `control_flow_rules` (one table of primitives each) and `decomposed_primitives` (primitives made of others);
  - `llvm_builder`: collects operations on varying numbers as LLVM instructions (`instructions`);
  - `scalar_ops`: JAX's elementwise operations on single numbers;
- `mathematics`: sin, exp and other functions, one family per file;
- `targets`: the loop over steps and the memory around a step (`time_loop`), and the machines it runs on (`cpu`, `gpu`);
  `slp_vectorizer` makes one instruction of eight equal ones of a single trajectory;
- `lattices`: rewrites a program for all sites of a lattice as one for a single site, and loops over the sites;
- `errors`: the exception that states why a program is not compiled.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

NUMERICS_VERSION = 1  # recorded in stores; increase it whenever the same program gives other bits

_PUBLIC = {
    "compile_step": "compile",
    **dict.fromkeys(["Buffers", "Kernel", "PathSampler", "Signature", "constant_pattern", "dynamic_input"], "kernel"),
    "NotCompilable": "errors",
    "Cpu": "targets.cpu",
    "Gpu": "targets.gpu",
    **dict.fromkeys(["likely", "low_precision", "no_fma", "unlikely"], "hints"),
}
__all__ = [*_PUBLIC, "NUMERICS_VERSION"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> _Any:
    """Import a public name when it is first used: the command line of coadjoint starts without JAX."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'stepcompiler' has no attribute {name!r}")
    return getattr(_import_module(f".{_PUBLIC[name]}", __name__), name)
