"""Nine kinds of fish as proportions: what a silhouette of each looks like. Lengths are in lengths of the fish.

The names are those of "A Large-Scale Dataset for Fish Segmentation and Classification" (Ulucan, Karakaya, Turkan,
2020), its spelling included, so that drawn and photographed fish are the same classes. The proportions are our own
drawing, not measurements: neighbours in the table (the breams, the mullets, bass and trout) differ in details only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fin:
    """A fin on the back or belly: where it begins and ends along the body, how high, and where its peak is (0 to 1)."""

    begin: float
    end: float
    height: float
    peak: float = 0.3


@dataclass(frozen=True)
class Kind:
    name: str
    depth: float
    """Greatest height of the body."""
    deepest: float
    """Where along the body that is."""
    back: float
    """Share of the depth above the line from nose to tail."""
    snout: float
    """Exponent of the outline before its deepest place: small is blunt, large is pointed."""
    stalk: float
    """Height of the body where the tail fin begins."""
    tail: float
    """Length of the tail fin."""
    span: float
    """Height of the tail fin at its end."""
    fork: float
    """How much of the tail fin's length is cut out in the middle; below 0 it is rounded outwards."""
    dorsal: tuple[Fin, ...]
    ventral: tuple[Fin, ...]
    whisker: float = 0.0
    """Length of the thread under the chin."""
    curl: float = 0.0
    """How far the body is bent besides what each fish does by itself."""
    legs: int = 0
    """Teeth along the belly."""


KINDS = (
    Kind("Black Sea Sprat", 0.20, 0.42, 0.42, 0.75, 0.060, 0.17, 0.21, 0.72,
         (Fin(0.46, 0.58, 0.060, 0.2),), (Fin(0.66, 0.80, 0.030), Fin(0.48, 0.54, 0.040))),
    Kind("Gilt-Head Bream", 0.38, 0.36, 0.60, 0.52, 0.085, 0.19, 0.31, 0.52,
         (Fin(0.30, 0.76, 0.070, 0.25),), (Fin(0.58, 0.76, 0.055), Fin(0.36, 0.46, 0.060))),
    Kind("Hourse Mackerel", 0.24, 0.38, 0.50, 0.66, 0.034, 0.17, 0.26, 0.62,
         (Fin(0.30, 0.42, 0.085, 0.35), Fin(0.45, 0.80, 0.055, 0.1)), (Fin(0.52, 0.80, 0.050, 0.1),)),
    Kind("Red Mullet", 0.26, 0.30, 0.58, 0.48, 0.070, 0.18, 0.25, 0.52,
         (Fin(0.30, 0.44, 0.095, 0.3), Fin(0.56, 0.68, 0.060, 0.2)),
         (Fin(0.57, 0.67, 0.050), Fin(0.32, 0.40, 0.055)), 0.13),
    Kind("Red Sea Bream", 0.40, 0.33, 0.66, 0.44, 0.085, 0.19, 0.31, 0.42,
         (Fin(0.28, 0.74, 0.085, 0.45),), (Fin(0.62, 0.76, 0.055), Fin(0.34, 0.44, 0.060))),
    Kind("Sea Bass", 0.25, 0.38, 0.52, 0.68, 0.075, 0.17, 0.24, 0.34,
         (Fin(0.32, 0.50, 0.085, 0.4), Fin(0.55, 0.72, 0.065, 0.2)), (Fin(0.60, 0.72, 0.055), Fin(0.34, 0.42, 0.050))),
    Kind("Shrimp", 0.17, 0.30, 0.55, 0.80, 0.075, 0.14, 0.19, -0.25,
         (Fin(0.02, 0.14, 0.030, 0.8),), (), 0.10, 0.55, 6),
    Kind("Striped Red Mullet", 0.25, 0.33, 0.55, 0.58, 0.070, 0.18, 0.25, 0.52,
         (Fin(0.31, 0.46, 0.110, 0.2), Fin(0.60, 0.73, 0.060, 0.2)),
         (Fin(0.61, 0.71, 0.050), Fin(0.34, 0.42, 0.055)), 0.17),
    Kind("Trout", 0.25, 0.40, 0.50, 0.62, 0.090, 0.15, 0.22, 0.08,
         (Fin(0.42, 0.58, 0.080, 0.3), Fin(0.72, 0.77, 0.030, 0.6)), (Fin(0.64, 0.74, 0.055), Fin(0.48, 0.56, 0.050))),
)  # fmt: skip
