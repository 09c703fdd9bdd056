"""A large reader that a small one learns from."""

import torch
from torch import nn


class Guide(nn.Module):
    """Reads a sentence; offers what it thinks of it and the picture it has of it."""

    def __init__(self, vocabulary, classes, width=192, depth=2):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(width, classes)
        self.requires_grad_(False)

    def picture(self, sentences):
        return self.body(self.words(sentences)).mean(dim=1)

    def opinion(self, sentences, temperature=2.0):
        return torch.softmax(self.out(self.picture(sentences)) / temperature, dim=-1)

    def sureness(self, sentences):
        return self.opinion(sentences).amax(dim=-1)
