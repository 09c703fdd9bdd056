"""Kinds of plankton under the microscope, with a net that mixes space by pooling only."""

import torch
from blocks.pooled import PoolNet, clips


def train(steps=36, batch=16, classes=10):
    generator = torch.Generator().manual_seed(50)
    torch.manual_seed(50)
    net = PoolNet(classes)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(steps):
        images, kinds = clips(batch, classes, 128, generator)
        scores = net(images)
        loss = torch.nn.functional.cross_entropy(scores, kinds, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 9 == 8:
            print(f"step {step + 1}: {loss.item():.4f}, right {(scores.argmax(1) == kinds).float().mean():.2f}")


if __name__ == "__main__":
    train()
