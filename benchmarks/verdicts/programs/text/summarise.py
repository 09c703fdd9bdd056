"""Greedy summaries of documents with a recurrent encoder and decoder (inference only)."""

import torch
from torch import nn


class Summariser(nn.Module):
    def __init__(self, words=5000, width=96):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)
        self.decoder = nn.GRUCell(2 * width, width)
        self.out = nn.Linear(width, words)

    def encode(self, document):
        states, _ = self.encoder(self.embedding(document))
        return self.bridge(states)

    def step(self, document, word, state):
        memory = self.encode(document)
        weights = torch.softmax(torch.bmm(memory, state.unsqueeze(2)).squeeze(2), dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        state = self.decoder(torch.cat([self.embedding(word), context], dim=1), state)
        return self.out(state), state


@torch.inference_mode()
def summarise(model, document, length):
    state = model.encode(document).mean(1)
    word = torch.ones(len(document), dtype=torch.long)
    words = []
    for _ in range(length):
        scores, state = model.step(document, word, state)
        word = scores.argmax(1)
        words.append(word)
    return torch.stack(words, 1)


def main():
    torch.manual_seed(2)
    model = Summariser().eval()
    documents = torch.randint(2, 5000, (20, 16, 120))
    lengths = []
    for batch in documents:
        summary = summarise(model, batch, length=12)
        lengths.append((summary != 0).sum(1).float().mean().item())
    print(f"{documents.shape[0] * documents.shape[1]} summaries, mean length {sum(lengths) / len(lengths):.1f}")


if __name__ == "__main__":
    main()
