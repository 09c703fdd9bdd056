"""How it is shown: terminal, HTML page, traces for other viewers."""
