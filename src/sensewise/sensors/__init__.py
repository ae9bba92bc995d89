"""Sensors: what an action reveals. The truth is inside the sensor and nowhere else, so no policy can peek."""
