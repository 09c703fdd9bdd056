"""The frameworks in which a workload can run: what each needs, and the function that runs a job in it."""
