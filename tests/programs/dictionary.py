"""A model in the style of Hugging Face: keyword arguments in, a dataclass of outputs with the loss inside out."""

from collections import OrderedDict
from dataclasses import dataclass, fields

import torch
from digest import report
from torch import nn
from torch.nn import functional as F


@dataclass
class Output(OrderedDict):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None

    def __post_init__(self):
        for field in fields(self):
            self[field.name] = getattr(self, field.name)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, hidden, mask=None):
        shape = (*hidden.shape[:-1], 2, 4)
        q, k, v = (one(hidden).view(shape).transpose(1, 2) for one in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (mixed.transpose(1, 2).flatten(2),)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.attention = Attention()
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.loss = nn.CrossEntropyLoss()

    def forward(self, tokens=None, labels=None):
        hidden = self.embed(tokens)
        hidden = self.norm(hidden + self.attention(hidden=hidden, mask=None)[0])
        logits = self.head(hidden)
        loss = None if labels is None else self.loss(logits.flatten(0, 1), labels.flatten())
        return Output(loss=loss, logits=logits)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for _ in range(5):
    batch = {"tokens": torch.randint(11, (2, 4)), "labels": torch.randint(11, (2, 4))}
    output = model(**batch)
    output.loss.backward()
    optimizer.step()
    model.zero_grad()
    losses.append(output["loss"].item())
report(losses, model)
