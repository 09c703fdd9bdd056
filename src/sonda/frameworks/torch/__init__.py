"""PyTorch.

It has no `profile`: phases and layers are observed while a step runs. Kernels that torch.profiler records in a program
(`observe/kernel_pass.py`) are read by `sonda.imports.kineto`.
"""
