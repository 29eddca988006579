"""The decision log: what the scheduler saw and what it decided, so that every cycle can be decided again.

A log is a series of JSON lines. It starts whole: which policy, then every object of the model, then what no object
says, and what the cycle before left that changes decisions (`CycleState`); the memo is empty, because the scheduler
forgets its own when a log begins (a memo saves work and changes no decision). Each further line is one cycle: what
changed since the one before, the time, and what was decided. `record` makes these lines, `replay` decides them again
and compares byte for byte, `files` keeps them on disk.
"""
