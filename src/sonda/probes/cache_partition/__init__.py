"""Ways of the last-level cache and memory bandwidth by resctrl, always restored."""
