"""What the large network thinks of the same readings."""

from torch.nn import functional


class Guide:
    """A trained network, and how far others are from its opinion."""

    def __init__(self, network, temperature=2.0):
        self.network = network.eval()
        self.temperature = temperature

    def opinion(self, readings):
        return functional.softmax(self.network(readings) / self.temperature, dim=1)

    def disagreement(self, logits, readings):
        own = functional.log_softmax(logits / self.temperature, dim=1)
        return functional.kl_div(own, self.opinion(readings), reduction="batchmean") * self.temperature**2
