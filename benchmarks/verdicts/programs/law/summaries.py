"""Headnotes of decisions: an encoder and a decoder with attention, gradients gathered over many decisions."""

import argparse

import torch
from torch import nn


class Headnotes(nn.Module):
    def __init__(self, words=400, width=96):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.model = nn.Transformer(
            width, 4, num_encoder_layers=2, num_decoder_layers=1, dim_feedforward=192, dropout=0.0, batch_first=True
        )
        self.out = nn.Linear(width, words)
        self.register_buffer("later", nn.Transformer.generate_square_subsequent_mask(9))

    def forward(self, decision, note):
        return self.out(self.model(self.words(decision), self.words(note), tgt_mask=self.later))


def library(count, words=400, length=32):
    decisions = torch.randint(1, words, (count, length))
    notes = torch.cat([torch.zeros(count, 1, dtype=torch.long), decisions[:, ::4] // 2], dim=1)
    return decisions, notes


def accumulate(model, decisions, notes, size):
    """Gradients of the mean loss over all of these decisions, `size` of them at a time."""
    total = 0.0
    for decision, note in zip(decisions.split(size), notes.split(size), strict=True):
        scores = model(decision, note)
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), note[:, 1:].flatten())
        share = len(decision) / len(decisions)
        (loss * share).backward()
        total += loss.detach() * share
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effective-batch", type=int, default=24)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--updates", type=int, default=30)
    given = parser.parse_args()
    torch.manual_seed(12)
    decisions, notes = library(480)
    model = Headnotes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for update in range(1, given.updates + 1):
        chosen = torch.randint(len(decisions), (given.effective_batch,))
        optimizer.zero_grad()
        loss = accumulate(model, decisions[chosen], notes[chosen], given.at_once)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
