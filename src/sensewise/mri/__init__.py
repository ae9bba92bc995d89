"""Accelerated MRI: an action measures one phase-encode row of k-space."""
