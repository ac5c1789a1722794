"""Runs inside JAX as native code: the run, its tangent and its adjoint as primitives.

- `program`: a traced run without its arrays, and the same run as a scan of XLA;
- `kernels`: the step, its tangent and its adjoint as native code;
- `layout`: arrays of JAX as words of kernels, and back;
- `calls`: the implementation of the primitives on a CPU;
- `primitives`: the primitives, and their rules of differentiation, transposition and batching;
- `growth`: the warning of gradients that grow;
- `info`: how the last gradient was computed.
"""
