"""The built-in networks: options and layers of each; the weights, example inputs and costs that follow from them."""
