"""Whose pods have to go so that others can be placed, and no more of them than that."""
