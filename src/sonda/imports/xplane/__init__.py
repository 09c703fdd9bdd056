"""Profiles of TensorFlow and JAX (XPlane)."""
