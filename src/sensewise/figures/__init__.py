"""Figures: results and arrays in, pictures out."""
