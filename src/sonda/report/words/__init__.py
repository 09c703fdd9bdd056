"""Words: the only place where findings become sentences.

A module for each subject registers the words of its findings with `describe`: `limits` what bounds a run, `remedies`
what can be tried, `doubts` warnings and notes of a measured run.
"""

from sonda.report.words import doubts as doubts
from sonda.report.words import limits as limits
from sonda.report.words import remedies as remedies
from sonda.report.words.describe import describe
from sonda.report.words.verdicts import in_words, verdict_sentences, word_findings

__all__ = ["describe", "in_words", "verdict_sentences", "word_findings"]
