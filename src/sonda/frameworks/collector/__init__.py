"""What runs inside the observed program: standard library and the framework only, nothing else of Sonda's."""
