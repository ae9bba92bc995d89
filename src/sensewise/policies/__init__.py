"""Policies: how much each action is worth right now. `choose` says which ones to take together."""
