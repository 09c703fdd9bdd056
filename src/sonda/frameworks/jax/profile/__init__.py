"""JAX's profiles: operations of a compiled function, their places and costs."""
