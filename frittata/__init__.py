"""Frittata is an equality-saturation compiler for tensor programs."""
