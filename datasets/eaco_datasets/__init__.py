"""Floor 1: what was measured.

Rooms, bottom up::

    errors <- types <- names (families, GPUs) <- physics
    schema (the profile table) <- readers (lucid, gavel, zeus, eaco) and simulated <- sources (registry)
    check (data quality) · fetch (public files)
"""
