"""Traces of Chrome and of torch.profiler (Kineto)."""
