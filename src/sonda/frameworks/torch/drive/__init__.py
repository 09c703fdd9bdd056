"""Built-in workloads in PyTorch: steps, epochs, state, determinism."""
