"""Priors: what every hidden site may be, given what has been seen."""
