"""Built-in workloads in TensorFlow."""
