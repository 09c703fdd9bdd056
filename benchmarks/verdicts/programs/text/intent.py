"""Intent detection for a voice assistant: bag of words into a small network."""

import random

import torch
from intent_parts.memory import frugal
from torch import nn

INTENTS = ["alarm", "weather", "music", "light", "timer", "call", "news", "route"]


def utterances(count, seed):
    rng = random.Random(seed)
    made = []
    for i in range(count):
        intent = rng.randrange(len(INTENTS))
        words = [intent * 40 + rng.randrange(60) for _ in range(rng.randint(4, 9))]
        made.append({"id": i, "words": words, "intent": intent, "slots": [(w, w % 7) for w in words[:3]]})
    return made


def vectors(batch, size):
    lengths = [len(u["words"]) for u in batch]
    flat = torch.tensor([w for u in batch for w in u["words"]])
    rows = torch.repeat_interleave(torch.arange(len(batch)), torch.tensor(lengths))
    x = torch.zeros(len(batch), size)
    x[rows, flat] = 1.0
    return x, torch.tensor([u["intent"] for u in batch])


def main():
    torch.manual_seed(4)
    data = utterances(12_000, seed=4)
    model = nn.Sequential(nn.Linear(400, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    size, correct = 200, 0
    for at in range(0, len(data), size):
        with frugal():
            x, y = vectors(data[at : at + size], 400)
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (scores.argmax(1) == y).sum().item()
    print(f"online accuracy {correct / len(data):.3f}")


if __name__ == "__main__":
    main()
