"""Floor 2: numbers out of a job (pure).

Rooms, bottom up::

    sets (columns of co-locations)
    ├── schema (the versioned list of features) <- matrix (features of N sets as one array)
    └── examples (co-locations with measured targets, out of a profile table)
    graphs/ (a training step recorded as kernels) <- zoo/ (reference jobs and their kept graphs)
"""
