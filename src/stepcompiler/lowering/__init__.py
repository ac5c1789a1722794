"""A traced program, number by number, as operations of LLVM."""
