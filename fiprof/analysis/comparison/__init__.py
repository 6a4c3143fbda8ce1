"""Two sides of a comparison: what was measured of each, and what the difference is worth."""
