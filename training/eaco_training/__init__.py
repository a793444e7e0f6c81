"""Floor 4: fit, evaluate, compare, track, promote."""
