"""Readers: one module a source, each ``read(data_dir) -> DataFrame`` yields the checked profile table."""
