"""A few steps of an unmodified program with one remedy applied from outside, and nothing written meanwhile.

`session` times steps and keeps losses, `remedies` change what the program asks of PyTorch, `survey` notes where it
does so, `guard` ends the process before anything that a try must not do.
"""
