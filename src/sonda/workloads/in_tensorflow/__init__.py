"""Built-in workloads in TensorFlow; imported only in the process that runs one."""
