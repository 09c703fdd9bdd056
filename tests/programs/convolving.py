"""Two convolutions, each with its activation and pooling, and a dense layer: four training steps on one batch.

26,279,936 FLOPs a forward: 2·27·16·1024·8 + 2·144·32·256·8 + 2·2048·10·8.
"""

import uncompiled  # noqa: F401

import torch  # isort: skip
from torch import nn  # isort: skip

torch.manual_seed(0)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.pool1 = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.pool2 = nn.MaxPool2d(2)
        self.dense = nn.Linear(2048, 10)

    def forward(self, images):
        images = self.pool1(self.relu1(self.conv1(images)))
        images = self.pool2(self.relu2(self.conv2(images)))
        return self.dense(images.flatten(1))


model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
for _ in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
