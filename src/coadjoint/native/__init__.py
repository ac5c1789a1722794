"""Native code: a traced program to numbers, numbers to LLVM, LLVM to machine code.

Read in this order:

- `lanes`: the front door. `native_loop` makes the compiled loop over the steps of a JAX function;
- `pairs`: a program with complex numbers as one with real ones;
- `kinds`: what a number of a program can be: known, the same for all, or varying;
- `evaluator`: evaluates a traced program number by number, with the rules of
  `moves`, `indexing`, `rules`, `control` (one table of primitives each) and `composed` (primitives made of others);
- `code`: collects what varies, as operations in LLVM's language; `operations`: JAX's operations on single numbers;
- `packing`: equal operations of a single trajectory eight at a time, as those of a chain of spins;
- `sites`: a program for all sites of a lattice as one for a single site; `sweeps`: such a step as loops over sites;
- `mathematics`: sin, exp, … of its own, one family a file;
- `loop`: the loop over steps around a step, and memory, for any target;
- `cpu`, `gpu`: the targets. How members are found and laid out, and compilation;
- `jaxprs`: what is spelled differently in different versions of JAX;
- `refused`: the exception that says why a program is not made native code.
"""

ARITHMETIC = 7  # the version of the bits: stores record it, and it changes whenever the same program gives others
