"""Triton kernels, compiled ahead of time to machine code inside the library; one operator a file."""
