"""The simulated machines: hardware, mappings, engines, energy; exact against STONNE, without stepping cycles."""
