"""Train a linear probe on a fixed audio encoder."""

import torch
from probe_parts.encoder import Encoder
from torch import nn

torch.manual_seed(0)
CLASSES = 7


class Probe(nn.Module):
    def __init__(self, encoder, classes):
        super().__init__()
        self.encoder = encoder
        self.classify = nn.Linear(encoder.width, classes)

    def forward(self, waves):
        return self.classify(self.encoder(waves))


encoder = Encoder()
probe = Probe(encoder, CLASSES)
optimizer = torch.optim.AdamW(probe.classify.parameters(), lr=5e-3)
waves = torch.randn(320, 1, 4000)
labels = torch.randint(CLASSES, (320,))
waves += 0.5 * torch.sin(torch.arange(4000) * 0.02 * (labels.view(-1, 1, 1) + 1))

for epoch in range(7):
    correct = 0
    for chosen in torch.randperm(320).split(20):
        logits = probe(waves[chosen])
        loss = nn.functional.cross_entropy(logits, labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == labels[chosen]).sum().item()
    print(f"epoch {epoch}: accuracy {correct / 320:.3f}")
