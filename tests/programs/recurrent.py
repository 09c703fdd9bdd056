"""A two-layer LSTM with packed sequences of several lengths."""

import torch
from digest import report
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, num_layers=2, bidirectional=True)
        self.out = nn.Linear(10, 2)

    def forward(self, packed):
        states, _ = self.lstm(packed)
        return self.out(pad_packed_sequence(states)[0])


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(5):
    packed = pack_sequence([torch.randn(length, 3) for length in (4, 3, 1)])
    loss = model(packed).logsumexp(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, model)
