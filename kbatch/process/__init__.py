"""What every kbatch process shares: settings, logs, health and metrics endpoints, a graceful life.

A process is written as one coroutine (`serve`) that gathers, calls kbatch and writes; everything around it stands
here, so that the scheduler, the operators and the webhook start, report and stop alike.
"""
