"""What a network hears."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Answer:
    """All that can be said of a batch, worked out when it is asked for."""

    network: nn.Module
    spectra: torch.Tensor

    @property
    def chances(self):
        return torch.softmax(self.network(self.spectra), dim=1)

    @property
    def kinds(self):
        return self.chances.argmax(dim=1)

    @property
    def sureness(self):
        best, second = self.chances.topk(2, dim=1).values.unbind(dim=1)
        return (best - second) / self.chances.max()


class Ear:
    def __init__(self, network):
        self.network = network

    def listen(self, spectra):
        return Answer(self.network, spectra)
