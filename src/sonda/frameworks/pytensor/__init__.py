"""PyTensor."""
