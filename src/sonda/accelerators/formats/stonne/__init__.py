"""STONNE: its files, its random numbers, its reference runs, and how ours are held against them."""
