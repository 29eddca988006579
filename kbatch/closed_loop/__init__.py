"""A recorded cluster under another policy: what a decision log tells is simulated again, and both are compared.

`history` reads a log, `world` makes the simulator's input of it, `comparison` says who starts earlier and who later.
"""
