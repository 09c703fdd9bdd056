"""PyTensor, observed inside the program."""
