"""Which CUDA kernels a call launches, and what it has to do at least: from the call alone."""
