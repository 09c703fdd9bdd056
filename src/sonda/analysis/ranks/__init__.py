"""Several ranks of one job: clocks, collectives, who is late and who waits."""
