"""A phrase book that is held in memory, and how long it may grow."""

import gc
from contextlib import contextmanager


class Phrase:
    def __init__(self, words, seen):
        self.words = words
        self.seen = seen
        self.notes = []


class PhraseBook:
    def __init__(self, rng, phrases, length, vocabulary):
        table = rng.integers(0, vocabulary, (phrases, length)).tolist()
        self.phrases = [Phrase(words, seen={"train": 0, "held": 0}) for words in table]

    def __len__(self):
        return len(self.phrases)

    def take(self, places):
        taken = [self.phrases[place] for place in places]
        for phrase in taken:
            phrase.seen["train"] += 1
        return [phrase.words for phrase in taken]


@contextmanager
def bounded():
    """Nothing that is done inside may leave anything behind."""
    try:
        yield
    finally:
        gc.collect()
