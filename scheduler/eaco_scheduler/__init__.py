"""Floor 4: cluster state, candidate sets, the EaCO decision."""
