"""Another tool's trace or profile: what its devices and its host did, and which steps it marks."""
