"""A language model of judgements: gated convolutions over the words before."""

import torch
from judgements_parts.corpus import Corpus
from torch import nn
from torch.nn import functional as F

WORDS = 500


class Gated(nn.Module):
    def __init__(self, width, reach):
        super().__init__()
        self.reach = reach
        self.conv = nn.Conv1d(width, 2 * width, reach)

    def forward(self, x):
        return x + F.glu(self.conv(F.pad(x, (self.reach - 1, 0))), dim=1)


class Judge(nn.Module):
    def __init__(self, width=80, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        nn.init.normal_(self.words.weight, std=0.05)
        self.layers = nn.Sequential(*(Gated(width, 4) for _ in range(layers)))
        self.bias = nn.Parameter(torch.zeros(WORDS))

    def forward(self, tokens):
        hidden = self.layers(self.words(tokens).transpose(1, 2)).transpose(1, 2)
        return F.linear(hidden, self.words.weight, self.bias)


def perplexity(losses):
    return torch.stack(losses).mean().exp().item()


def main(steps=45):
    torch.manual_seed(90)
    corpus = Corpus(tokens=30_000_000, words=WORDS, context=64, seed=90)
    model = Judge()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
    recent = []
    for step in range(1, steps + 1):
        before, after = corpus.batch(16)
        loss = F.cross_entropy(model(before).flatten(0, 1), after.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss.detach())
        if step % 15 == 0:
            print(f"step {step}: perplexity {perplexity(recent):.1f}")
            recent.clear()


if __name__ == "__main__":
    main()
