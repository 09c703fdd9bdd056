"""A study's file: reading it, checking every word, and naming each mistake with its line."""
