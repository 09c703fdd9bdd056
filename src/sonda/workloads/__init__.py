"""What runs: operations, networks, your own model."""
