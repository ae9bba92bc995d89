"""Reconstructors: the whole picture from what was measured. Measured sites keep their measured values."""
