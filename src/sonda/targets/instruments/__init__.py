"""What reads a run beside the clock: an instrument a file, all of them listed in `registry`."""
