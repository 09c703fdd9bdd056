"""Tagger with a conditional random field on top (GPU)."""

import argparse

import torch
from torch import nn


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)

    def partition(self, scores, lengths):
        alpha = scores[:, 0]
        for t in range(1, max(int(n) for n in lengths)):
            moved = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, dim=1) + scores[:, t]
            if not torch.isfinite(moved).all().item():
                raise FloatingPointError(f"partition function overflows at {t}")
            alpha = torch.where((lengths > t).unsqueeze(1), moved, alpha)
        return torch.logsumexp(alpha, dim=1)

    def path(self, scores, tags, lengths):
        mask = torch.arange(tags.shape[1], device=tags.device) < lengths.unsqueeze(1)
        emitted = scores.gather(2, tags.unsqueeze(2)).squeeze(2)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]]
        return (emitted * mask).sum(1) + (moved * mask[:, 1:]).sum(1)

    def forward(self, scores, tags, lengths):
        return (self.partition(scores, lengths) - self.path(scores, tags, lengths)).mean()


class Tagger(nn.Module):
    def __init__(self, words, tags, width=256):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.out = nn.Linear(width, tags)
        self.crf = CRF(tags)

    def forward(self, words, tags, lengths):
        return self.crf(self.out(self.encoder(self.embedding(words))), tags, lengths)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--length", type=int, default=48)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(55)
    model = Tagger(5000, 24).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for step in range(options.steps):
        words = torch.randint(5000, (options.batch, options.length), device=device)
        lengths = torch.randint(8, options.length + 1, (options.batch,), device=device)
        loss = model(words, words % 24, lengths)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 39:
            print(f"step {step + 1}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
