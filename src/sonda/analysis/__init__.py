"""What it means: statistics, roofline, comparison, verdicts."""
