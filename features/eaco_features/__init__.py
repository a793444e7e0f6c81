"""Floor 2: numbers out of a job: utilisation and co-location sets (pure)."""
