"""The command."""

from kbatch.blas import keep_to_one_thread

keep_to_one_thread()
