"""Designed experiments: file format, plan, the engine that runs them."""
