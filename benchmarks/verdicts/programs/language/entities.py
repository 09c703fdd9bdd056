"""Entity tagging over word pieces with a small tagger that sees a piece and the one before."""

from dataclasses import dataclass

import torch
from pieces.align import IGNORE, Aligner
from torch import nn


@dataclass
class TaggerArguments:
    vocabulary: int = 4000
    tags: int = 9
    width: int = 16
    length: int = 256
    batch_size: int = 192
    max_steps: int = 130
    learning_rate: float = 2e-3
    logging_steps: int = 26


class PieceTagger(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Embedding(args.vocabulary, args.width)
        self.mix = nn.Linear(args.width, args.width)
        self.tag = nn.Linear(args.width, args.tags)

    def forward(self, pieces):
        h = self.embed(pieces)
        h = h + torch.relu(self.mix((h + h.roll(1, 1)).tanh()))
        return self.tag(h)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = PieceTagger(args)
        self.aligner = Aligner(args.vocabulary)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.learning_rate * 100)

    def corpus(self):
        for _ in range(self.args.max_steps):
            pieces = torch.randint(self.args.vocabulary, (self.args.batch_size, self.args.length))
            yield pieces, (pieces + pieces.roll(1, 1)) % self.args.tags

    def training_step(self, pieces, labels):
        wanted = self.aligner(pieces, labels)
        scores = self.model(pieces)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=IGNORE)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self):
        for step, (pieces, labels) in enumerate(self.corpus(), 1):
            loss = self.training_step(pieces, labels)
            if step % self.args.logging_steps == 0:
                print({"step": step, "loss": round(loss.item(), 4)})


if __name__ == "__main__":
    torch.manual_seed(11)
    Trainer(TaggerArguments()).train()
