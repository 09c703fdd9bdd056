"""How close two sequences of labels are."""


def edits(said, wanted):
    """Insertions, deletions and replacements that make one sequence of the other."""
    row = list(range(len(wanted) + 1))
    for i, left in enumerate(said, 1):
        corner, row[0] = row[0], i
        for j, right in enumerate(wanted, 1):
            changed = corner + (left != right)
            corner = row[j]
            row[j] = min(changed, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def closeness(said, wanted):
    return [1.0 - edits(a, b) / len(b) for a, b in zip(said.tolist(), wanted.tolist(), strict=True)]
