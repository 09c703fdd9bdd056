"""PyTorch, observed inside the program."""
