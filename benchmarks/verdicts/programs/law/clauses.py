"""Unfair terms: clauses of any length, attended to by a learnt query, and judged by nine labels."""

import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.recompile_limit = 128


class Attend(nn.Module):
    def __init__(self, words=6000, width=128, labels=9):
        super().__init__()
        self.word = nn.Embedding(words, width, padding_idx=0)
        self.lift = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width))
        self.query = nn.Linear(width, 1)
        self.judge = nn.Linear(width, labels)

    def forward(self, tokens):
        words = self.lift(self.word(tokens))
        weight = self.query(words).squeeze(-1).masked_fill(tokens == 0, -1e4).softmax(dim=-1)
        return self.judge(torch.einsum("bt,btd->bd", weight, words))


def write_clauses(count, generator):
    lengths = torch.randint(12, 64, (count,), generator=generator).tolist()
    return [torch.randint(1, 6000, (length,), generator=generator) for length in lengths]


def batches(clauses, size):
    """Clauses of about the same length together, padded to the longest of each batch."""
    clauses = sorted(clauses, key=len)
    groups = [clauses[start : start + size] for start in range(0, len(clauses), size)]
    for number in torch.randperm(len(groups)).tolist():
        yield nn.utils.rnn.pad_sequence(groups[number], batch_first=True)


def label(tokens):
    return torch.stack([(tokens % 97 == mark).any(dim=1) for mark in range(9)], dim=1).float()


def main():
    torch.manual_seed(10)
    generator = torch.Generator().manual_seed(10)
    clauses = write_clauses(1200, generator)
    model = Attend()
    judge = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    for epoch in range(2):
        losses = []
        for tokens in batches(clauses, 48):
            loss = nn.functional.binary_cross_entropy_with_logits(judge(tokens), label(tokens))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
