"""A GPU that the program uses: its times, its state, its kernels."""
