"""Parts of one's own: each is found by Sonda through an entry point of this package."""
