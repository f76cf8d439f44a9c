"""The CUDA target: kernels as plain numba.cuda source, from the same loop nests as on the CPU."""
