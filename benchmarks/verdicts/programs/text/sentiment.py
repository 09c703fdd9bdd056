"""Sentiment of film reviews with an averaged-embedding classifier and a small convolution."""

import itertools
import random
import re

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PIECES = ["good", "bad", "awful", "great", "plot", "actor", "scene", "boring", "fine", "music", "don't", "the", "a"]


def make_reviews(count, rng):
    reviews = []
    for _ in range(count):
        label = rng.random() < 0.5
        favoured = PIECES[:2] if label else PIECES[2:4]
        words = [rng.choice(favoured if rng.random() < 0.2 else PIECES) + str(rng.randrange(60)) for _ in range(220)]
        text = " ".join(words).replace("music", "<br />Music").capitalize() + "!!"
        reviews.append((text, int(label)))
    return reviews


def clean(text):
    text = re.sub(r"<[^>]+>", " ", text.lower())
    text = re.sub(r"([.,!?()])", r" \1 ", text)
    text = re.sub(r"(\w+)n't", r"\1 not", text)
    return re.findall(r"[a-z]+|[0-9]|[.,!?]", text)


class Vocabulary:
    def __init__(self, texts):
        self.index = {"<pad>": 0, "<unk>": 1}
        for text in texts:
            for token in clean(text):
                self.index.setdefault(token, len(self.index))

    def __len__(self):
        return len(self.index)

    def encode(self, text, length):
        tokens = clean(text)
        bigrams = [a + "_" + b for a, b in itertools.pairwise(tokens)]
        ids = [self.index.get(token, 1) for token in tokens]
        ids += [2 + sum(map(ord, bigram)) % 500 for bigram in bigrams]
        return (ids + [0] * length)[:length]


class Reviews(Dataset):
    def __init__(self, reviews, vocabulary, length=384):
        self.reviews = reviews
        self.vocabulary = vocabulary
        self.length = length

    def __len__(self):
        return len(self.reviews)

    def __getitem__(self, i):
        text, label = self.reviews[i]
        ids = self.vocabulary.encode(text, self.length)
        return torch.tensor(ids), label


class Classifier(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embedding = nn.Embedding(words, 48, padding_idx=0)
        self.convolution = nn.Conv1d(48, 48, 5, stride=2)
        self.head = nn.Linear(48, 2)

    def forward(self, ids):
        x = self.embedding(ids).transpose(1, 2)
        return self.head(torch.relu(self.convolution(x)).amax(dim=2))


if __name__ == "__main__":
    torch.manual_seed(1)
    reviews = make_reviews(960, random.Random(1))
    vocabulary = Vocabulary([text for text, _ in reviews[:200]])
    loader = DataLoader(Reviews(reviews, vocabulary), batch_size=64, shuffle=True)
    model = Classifier(max(len(vocabulary), 502))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        correct = 0
        for ids, labels in loader:
            scores = model(ids)
            loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (scores.argmax(1) == labels).sum().item()
        print(f"epoch {epoch + 1}: accuracy {correct / len(reviews):.3f}")
