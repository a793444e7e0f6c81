"""Model graphs: one training step of a job, recorded as operations with their FLOPs and bytes."""
