"""Traces: the jobs of a workload log, scheduled in virtual time by first come first served or shortest job first.

`reading` makes jobs of a file, `cluster` the nodes; `run` goes from instant to instant and asks a scheduler (`easy`,
`conservative`) what starts; `usage` keeps the sums over time, `result` and `plot` say what came of it. The schedulers
work on a `timeline`: what is free on which nodes, now and as far as ends are expected.
"""
