"""Sonda's own kinds of engine, one class each; `engines.registry` names them."""
