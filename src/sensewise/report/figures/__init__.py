"""Figures: results and arrays in, pictures out. Nothing here runs a model."""
