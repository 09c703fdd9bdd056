"""Files of other tools as runs."""
