"""Runs on simulated accelerators, and explorations of many of them."""
