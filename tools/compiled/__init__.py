"""Compiles the engine, the model and the simulator ahead of time, with mypyc (docs/decisions/0044-compiled-engine.md).

The sources stay plain Python, and run as they are in development and in tests. `python -m tools.compiled` makes a copy
of them that mypyc can take, and of the copy extension modules that stand in the place of the modules they are made of.
"""
