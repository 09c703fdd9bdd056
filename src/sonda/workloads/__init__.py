"""What runs: operations, networks, your own model."""

DOORS = (
    "catalogue", "data", "data.drawn_fish", "data.epoch_batches", "data.image_stream", "data.layouts",
    "data.preparation", "data.prepared", "data.training_set", "description", "in_jax.learner", "in_jax.network",
    "in_pytensor.learner", "in_pytensor.network", "in_pytensor.operations", "in_tensorflow.input_pipeline",
    "in_tensorflow.layerwise",
    "in_tensorflow.learner", "in_tensorflow.model_garden", "in_tensorflow.network", "in_tensorflow.operations",
    "in_tensorflow.strategies", "in_tensorflow.strategy_learner",
    "in_torch.own_training", "in_torch.streamed_images", "in_torch.training_images", "input_shapes", "model_garden",
    "networks.cost",
    "networks.dlrm", "networks.image_classifiers", "operations.ops",
    "own_model",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
