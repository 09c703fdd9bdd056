"""Topic of a paragraph from its words; the effective batch is gathered over several passes."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Arguments:
    per_device_batch_size: int = 2
    gradient_accumulation_steps: int = 32
    learning_rate: float = 1e-3
    num_train_epochs: int = 2
    paragraphs: int = 2048
    length: int = 48
    vocabulary: int = 3000
    topics: int = 12


class Paragraphs(nn.Module):
    def __init__(self, args, width=96):
        super().__init__()
        self.words = nn.Embedding(args.vocabulary, width)
        self.gate = nn.Linear(width, 2 * width)
        self.attend = nn.Linear(width, 1)
        self.hidden = nn.Linear(width, 2 * width)
        self.topic = nn.Linear(2 * width, args.topics)

    def forward(self, words):
        h = nn.functional.glu(self.gate(self.words(words)), dim=-1)
        pooled = (self.attend(h).softmax(dim=1) * h).sum(dim=1)
        return self.topic(torch.tanh(self.hidden(pooled)))


class HandTrainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.global_step = 0

    def get_train_dataloader(self, words, topics):
        order = torch.randperm(len(words))
        for rows in order.split(self.args.per_device_batch_size):
            yield words[rows], topics[rows]

    def train(self, words, topics):
        args = self.args
        for epoch in range(args.num_train_epochs):
            total = 0.0
            for number, (inputs, labels) in enumerate(self.get_train_dataloader(words, topics), 1):
                loss = nn.functional.cross_entropy(self.model(inputs), labels) / args.gradient_accumulation_steps
                loss.backward()
                total += loss.item()
                if number % args.gradient_accumulation_steps == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.global_step += 1
                    if self.global_step % 16 == 0:
                        print(f"epoch {epoch} step {self.global_step} loss {total / 16:.4f}")
                        total = 0.0


if __name__ == "__main__":
    torch.manual_seed(9)
    arguments = Arguments()
    topics = torch.randint(arguments.topics, (arguments.paragraphs,))
    centre = topics[:, None] * 200 + 300
    words = (centre + 200 * torch.randn(arguments.paragraphs, arguments.length)).long().clamp(0, 2999)
    HandTrainer(Paragraphs(arguments), arguments).train(words, topics)
