"""A graph neural network over model graphs (extra ``gnn``). Only this package imports torch below the recorder."""
