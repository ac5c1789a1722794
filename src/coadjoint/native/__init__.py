"""Native code: a traced program to numbers, numbers to LLVM, LLVM to machine code."""
