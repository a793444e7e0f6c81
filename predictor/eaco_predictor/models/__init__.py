"""One file a model; names are given out by ``eaco_predictor.registry``."""
