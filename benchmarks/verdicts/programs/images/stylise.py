"""Give a picture the texture of another: the picture's pixels are what is trained."""

import torch
from torch import nn
from torch.nn import functional as F


def features(seed=4):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 96, 3, padding=1), nn.ReLU(),
        nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(),
    )  # fmt: skip


def gram(x):
    flat = x.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[2]


def scenery(side):
    axis = torch.linspace(-1, 1, side)
    content = torch.stack([torch.sin(5 * axis[:, None] + k * axis) for k in range(3)])[None]
    stripes = torch.stack([torch.sign(torch.sin(25 * (axis[:, None] + (k - 1) * axis))) for k in range(3)])[None]
    return content, stripes


class Stylist:
    style_layers = (3, 6, 11)
    content_layer = 8

    def __init__(self, net, content, style):
        self.net = net
        with torch.no_grad():
            self.wanted = [gram(x) for x in self.watch(style)[0]]
            self.content = self.watch(content)[1]

    def watch(self, x):
        styles, content = [], None
        for number, layer in enumerate(self.net):
            x = layer(x)
            if number in self.style_layers:
                styles.append(x)
            if number == self.content_layer:
                content = x
        return styles, content

    def score(self, picture):
        styles, content = self.watch(picture)
        texture = sum(F.mse_loss(gram(x), wanted) for x, wanted in zip(styles, self.wanted, strict=True))
        return F.mse_loss(content, self.content) + 100 * texture

    def paint(self, picture, steps):
        picture = picture.clone().requires_grad_()
        optimizer = torch.optim.Adam([picture], lr=0.03)
        for step in range(steps):
            loss = self.score(picture)
            picture.grad = None
            loss.backward()
            optimizer.step()
            if step % 16 == 15:
                print(f"{step + 1} strokes: {loss.item():.5f}")
        return picture.detach()


if __name__ == "__main__":
    scene, texture = scenery(56)
    Stylist(features(), scene, texture).paint(scene, 64)
