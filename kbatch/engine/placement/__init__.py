"""Where pods can stand: the ranking of nodes by class, the emptied cluster, and the placement of a gang."""
