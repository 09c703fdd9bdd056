"""Word labels brought onto word pieces."""

import torch

IGNORE = -100
LONG = 7
OUTSIDE = 0


class Aligner:
    """Gives the label of a word to its first piece; further pieces of a word are not scored.

    Odd labels begin an entity and the even ones after them go on with it; one that goes on from nothing begins.
    """

    def __init__(self, vocabulary):
        self.begins = [piece % 3 != 0 or piece < LONG for piece in range(vocabulary)]

    def __call__(self, pieces, labels):
        wanted = torch.full_like(pieces, IGNORE)
        rows = wanted.tolist()
        for row, sentence, given in zip(rows, pieces.tolist(), labels.tolist(), strict=True):
            before = OUTSIDE
            for place, piece in enumerate(sentence):
                label = given[place]
                if place == 0 or self.begins[piece]:
                    inside = label % 2 == 0 and label != OUTSIDE
                    row[place] = label - 1 if inside and before not in (label, label - 1) else label
                before = label
        return torch.tensor(rows)
