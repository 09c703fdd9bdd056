"""A run in trackers of experiments: TensorBoard, MLflow, Weights & Biases."""
