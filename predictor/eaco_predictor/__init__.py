"""Floor 3: learned models of relative speed, power, utilisation and memory, with intervals (pure)."""
