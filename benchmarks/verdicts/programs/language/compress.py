"""Knowledge distillation of a sentence classifier: soft labels, a hint on the hidden state, and weights by sureness."""

import torch
from torch import nn
from torch.nn import functional as F
from tutor.guide import Guide

VOCABULARY, CLASSES, LENGTH = 2000, 6, 40


class Pupil(nn.Module):
    def __init__(self, width=64, hint=192):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCABULARY, width)
        self.body = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.hint = nn.Linear(128, hint)
        self.out = nn.Linear(128, CLASSES)

    def forward(self, sentences):
        h = self.body(self.words(sentences))
        return self.out(h), self.hint(h)


class Distillation:
    def __init__(self, guide, pupil, temperature=2.0, hint_weight=0.1):
        self.guide, self.pupil = guide, pupil
        self.temperature, self.hint_weight = temperature, hint_weight
        self.optimizer = torch.optim.Adam(pupil.parameters(), lr=1e-3)

    def losses(self, sentences):
        guide = self.guide
        logits, hint = self.pupil(sentences)
        soft = F.log_softmax(logits / self.temperature, dim=-1)
        weight = guide.sureness(sentences)
        blame = -(guide.opinion(sentences) * soft).sum(dim=-1)
        return (weight * blame).mean(), F.mse_loss(hint, guide.picture(sentences))

    def fit(self, batches):
        for step, sentences in enumerate(batches):
            blame, distance = self.losses(sentences)
            self.optimizer.zero_grad()
            (blame + self.hint_weight * distance).backward()
            self.optimizer.step()
            if step % 10 == 0:
                print(f"step {step}: blame {blame.item():.4f}, hint {distance.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(13)
    teacher = Guide(VOCABULARY, CLASSES).eval()
    Distillation(teacher, Pupil()).fit(torch.randint(VOCABULARY, (50, 32, LENGTH)))
