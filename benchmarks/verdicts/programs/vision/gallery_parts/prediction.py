"""What a classifier says of a batch."""


class Prediction:
    """Labels and confidences of images under a model."""

    def __init__(self, model, images):
        self.model = model
        self.images = images

    @property
    def probabilities(self):
        return self.model(self.images).softmax(dim=1)

    @property
    def labels(self):
        return self.probabilities.argmax(dim=1)

    @property
    def confidence(self):
        return self.probabilities.max(dim=1).values
