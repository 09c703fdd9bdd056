"""Weeds among seedlings: segmentation of drone images with a small encoder and decoder."""

import torch
from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class WeedNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.fine = conv(3, 32, stride=2)
        self.middle = nn.Sequential(conv(32, 64, stride=2), conv(64, 64))
        self.coarse = nn.Sequential(conv(64, 128, stride=2), conv(128, 128), conv(128, 64))
        self.join = conv(64, 32)
        self.out = nn.Conv2d(32, classes, 1)

    def forward(self, images):
        fine = self.fine(images)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.join(middle + F.interpolate(coarse, scale_factor=2))
        return self.out(fine + F.interpolate(middle, scale_factor=2))


def flight(images, side):
    ground = F.interpolate(torch.randn(images, 1, side // 16, side // 16), size=(side // 2, side // 2), mode="bilinear")
    plants = torch.bucketize(ground.squeeze(1), torch.tensor([0.2, 0.7]))
    colour = torch.tensor([[0.4, 0.3, 0.2], [0.2, 0.6, 0.2], [0.4, 0.7, 0.1]])
    seen = F.interpolate(colour[plants].permute(0, 3, 1, 2), scale_factor=2)
    return (seen + 0.1 * torch.randn_like(seen)).contiguous(memory_format=torch.channels_last), plants


def main(steps=36, batch=8, side=96):
    torch.manual_seed(6)
    images, plants = flight(64, side)
    net = WeedNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(images), (batch,))
        loss = F.cross_entropy(net(images[chosen]), plants[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 12 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
