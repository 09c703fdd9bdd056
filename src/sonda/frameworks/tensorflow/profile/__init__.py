"""TensorFlow's profiles: operations of a graph, and their places."""
