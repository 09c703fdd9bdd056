"""What is kept: spans, samples, metrics, runs, the store; errors; the protocols between the rooms."""
