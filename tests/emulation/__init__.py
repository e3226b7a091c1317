"""Runs CUDA kernels on the processor, so that their logic is tested on machines without a GPU."""
