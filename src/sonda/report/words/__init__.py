"""Words: the only place where findings become sentences.

A module for each subject registers the words of its findings with `describe`, and stands in its list `SUBJECTS`.
"""

from sonda.report.words.describe import describe
from sonda.report.words.verdicts import brief_doubts, in_words, verdict_sentences, word_findings

__all__ = ["brief_doubts", "describe", "in_words", "verdict_sentences", "word_findings"]
