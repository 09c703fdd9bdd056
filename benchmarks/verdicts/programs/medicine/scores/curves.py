"""Scores of a screening test."""


def auroc(scores, sick):
    """How often a sick patient scores above a healthy one."""
    ill = [score for score, state in zip(scores.tolist(), sick.tolist(), strict=True) if state]
    well = [score for score, state in zip(scores.tolist(), sick.tolist(), strict=True) if not state]
    won = 0.0
    for one in ill:
        won += sum(1.0 if one > other else 0.5 if one == other else 0.0 for other in well)
    return won / max(1, len(ill) * len(well))
