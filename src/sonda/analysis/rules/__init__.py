"""Verdicts: one rule per file, each finding what limits a run, or nothing; `judge` puts them in order.

A rule is a function from a `Summary` to a `Verdict` or None. Others join through the entry-point group `sonda.rules`.
The folders say what a rule looks at: `limits` what bounds the work as it is, `operations` those of a counted step,
`code` sampled stacks, `device` the lines that make a GPU wait, `program` its processes, cores and stages.
"""
