"""What engines are given: products, convolutions, lookups, captured from a PyTorch model."""
