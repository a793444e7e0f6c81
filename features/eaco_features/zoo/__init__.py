"""Reference training jobs in plain torch, one module a family; each has ``build_job(batch_size) -> TrainingJob``."""
