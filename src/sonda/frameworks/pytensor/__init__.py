"""PyTensor.

It has no `profile`: a compiled function of PyTensor writes none that tells its layers apart. `drive` times layers as
functions of their own, and `observe` takes times of operations from linkers that run them one by one.
"""
