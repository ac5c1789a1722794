"""stepcompiler: a traced JAX program as a compiled loop over time steps, for CPU and GPU.

Read in this order:

- `compile`: the entry point. `native_loop` makes the compiled loop over the steps of a JAX function;
- `hints`: primitives that state how a part of a program may be computed;
- `jaxprs`: tools that read, evaluate and transform traced programs; no LLVM;
- `lowering`: a traced program, number by number, as operations of LLVM:
  - `complex_lowering`: a program with complex numbers as one with real numbers;
  - `scalar_kinds`: a number is known at compile time, the same for all members, or varying;
  - `evaluator`: evaluates a traced program with the rules of `indexing_rules`, `reduction_rules`,
    `control_flow_rules` (one table of primitives each) and `decomposed_primitives` (primitives made of others);
  - `llvm_builder`: collects operations on varying numbers as LLVM instructions;
  - `scalar_ops`: JAX's elementwise operations on single numbers;
- `mathematics`: sin, exp and other functions, one family per file;
- `targets`: the loop over steps and the memory around a step (`time_loop`), and the machines it runs on (`cpu`, `gpu`);
  `slp_vectorizer` computes equal operations of a single trajectory eight at a time;
- `lattices`: a program for all sites of a lattice as one for a single site, and loops over the sites;
- `errors`: the exception that states why a program is not compiled.
"""

NUMERICS_VERSION = 1  # recorded in stores; increase it whenever the same program gives other bits
