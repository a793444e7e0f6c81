"""Floor 5: the faces: REST service and the eaco command line."""
