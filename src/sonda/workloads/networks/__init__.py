"""The built-in networks: a description each, their layers, weights, example inputs and costs."""
