"""JAX, observed inside the program."""
