"""Floor 3: learned models of relative speed, power, utilisation and memory, with intervals (pure).

Rooms, bottom up::

    protocol, targets (what is learned, and its physical limits), families (folds and weights)
    models/ (one file a model) <- registry (names) <- intervals, observations <- pipeline
    solos (known solo profiles), distance (how far from the training data), set_power
    prediction (the answer's shape) <- predictor (all parts behind one call) <- fitting (train them)
"""
