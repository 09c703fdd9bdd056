"""Fine-tune the upper half of a small network with early stopping."""

import argparse
import math

import torch
from torch import nn


def build(classes):
    body = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
    )
    return nn.Sequential(body, nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, classes)))


@torch.no_grad()
def evaluate(model, images, labels, batch=128):
    model.eval()
    losses, right = 0.0, 0
    for start in range(0, len(images), batch):
        logits = model(images[start : start + batch])
        target = labels[start : start + batch]
        losses += nn.functional.cross_entropy(logits, target, reduction="sum").item()
        right += (logits.argmax(1) == target).sum().item()
    model.train()
    return losses / len(images), right / len(images)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--evaluate-every", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    prototypes = torch.randn(6, 3, 32, 32)
    labels = torch.randint(6, (1600,))
    images = prototypes[labels] + 2.0 * torch.randn(1600, 3, 32, 32)
    train_images, train_labels = images[:1088], labels[:1088]
    held_images, held_labels = images[1088:], labels[1088:]

    model = build(6)
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters(), "lr": 1e-4}, {"params": model[1].parameters(), "lr": 1e-3}]
    )
    best = math.inf
    for step in range(1, options.steps + 1):
        chosen = torch.randint(len(train_images), (options.batch,))
        loss = nn.functional.cross_entropy(model(train_images[chosen]), train_labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.evaluate_every == 0:
            held, accuracy = evaluate(model, held_images, held_labels)
            if held < best:
                best = held
            if step % 20 == 0:
                print(f"step {step}: held-out loss {held:.4f}, accuracy {accuracy:.3f}, best {best:.4f}")


if __name__ == "__main__":
    main()
