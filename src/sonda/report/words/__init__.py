"""Words: the only place where findings become sentences.

A module for each subject registers the words of its findings with `describe`.
"""

from sonda.report.words import comparison as comparison
from sonda.report.words import corun as corun
from sonda.report.words import counters as counters
from sonda.report.words import device as device
from sonda.report.words import doubts as doubts
from sonda.report.words import energy as energy
from sonda.report.words import limits as limits
from sonda.report.words import ranks as ranks
from sonda.report.words import remedies as remedies
from sonda.report.words import serving as serving
from sonda.report.words import simulated as simulated
from sonda.report.words import traces as traces
from sonda.report.words.describe import describe
from sonda.report.words.verdicts import in_words, verdict_sentences, word_findings

__all__ = ["describe", "in_words", "verdict_sentences", "word_findings"]
