"""Distillation of a sentence encoder into a smaller one."""

import torch
from torch import nn
from torch.nn import functional as F


def encoder(words, width, layers, heads):
    layer = nn.TransformerEncoderLayer(width, heads, width * 2, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(words, width), nn.TransformerEncoder(layer, layers))


class Distiller(nn.Module):
    def __init__(self, words=4000, classes=20):
        super().__init__()
        self.teacher = encoder(words, 160, 3, 4)
        self.teacher_head = nn.Linear(160, classes)
        self.student = encoder(words, 64, 1, 2)
        self.student_head = nn.Linear(64, classes)
        self.temperature = 2.0

    def loss(self, words, labels):
        strong = self.teacher_head(self.teacher(words).mean(1)) / self.temperature
        weak = self.student_head(self.student(words).mean(1))
        soft = F.kl_div(
            F.log_softmax(weak / self.temperature, 1),
            F.log_softmax(strong, 1),
            reduction="batchmean",
            log_target=True,
        )
        return soft * self.temperature**2 + F.cross_entropy(weak, labels)


def main():
    torch.manual_seed(21)
    system = Distiller()
    trained = [*system.student.parameters(), *system.student_head.parameters()]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    for step in range(80):
        words = torch.randint(4000, (16, 32))
        labels = words[:, 0] % 20
        loss = system.loss(words, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
