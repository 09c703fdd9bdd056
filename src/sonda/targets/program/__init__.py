"""An unmodified program, observed or only measured from outside."""
