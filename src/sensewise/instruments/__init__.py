"""Real instruments: what the loop asks for in their own formats, and what they measure back into it."""
