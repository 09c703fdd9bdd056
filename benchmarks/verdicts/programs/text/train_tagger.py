"""Part-of-speech tagger: word embeddings and word-shape features into a BiLSTM."""

import torch
from torch import nn

VOCABULARY = 6000
TAGS = 17
SHAPES = 12


def make_corpus(sentences=1440, length=24, seed=7):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, VOCABULARY, (sentences, length), generator=generator)
    tags = (words * 31 + words.roll(1, 1)) % TAGS
    return words, tags


def word_strings(seed=7):
    generator = torch.Generator().manual_seed(seed)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-'."
    lengths = torch.randint(2, 12, (VOCABULARY,), generator=generator).tolist()
    return ["".join(letters[i] for i in torch.randint(len(letters), (n,), generator=generator)) for n in lengths]


def shape_of(word):
    features = [0.0] * SHAPES
    features[0] = float(word[0].isupper())
    features[1] = float(word.isupper())
    features[2] = float(any(c.isdigit() for c in word))
    features[3] = float("-" in word)
    features[4] = float("'" in word)
    features[5] = float(word.endswith("."))
    features[6] = len(word) / 12
    features[7] = sum(c in "aeiou" for c in word) / len(word)
    features[8] = sum(c.isupper() for c in word) / len(word)
    features[9] = float(word[-1] == "s")
    features[10] = float(word.endswith("ed"))
    features[11] = float(word.endswith("ing"))
    return features


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.lstm = nn.LSTM(64 + SHAPES, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, TAGS)

    def forward(self, words, shapes):
        hidden, _ = self.lstm(torch.cat([self.embedding(words), shapes], dim=-1))
        return self.out(hidden)


def shape_features(words, strings):
    rows = []
    for sentence in words.tolist():
        rows.append([shape_of(strings[word]) for word in sentence])
    return torch.tensor(rows)


def main():
    torch.manual_seed(0)
    words, tags = make_corpus()
    strings = word_strings()
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    batch = 96
    for epoch in range(6):
        total = 0.0
        order = torch.randperm(len(words))
        for chosen in order.split(batch):
            x, y = words[chosen], tags[chosen]
            shapes = shape_features(x, strings)
            scores = model(x, shapes)
            loss = criterion(scores.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / (len(words) // batch):.3f}")


if __name__ == "__main__":
    main()
