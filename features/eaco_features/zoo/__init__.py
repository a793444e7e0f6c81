"""Reference training jobs in plain torch, one module a family; ``build_<model>_<dataset>(batch_size)`` makes a job."""
