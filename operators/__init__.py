"""The processes of kbatch: the scheduler, and the operators of PodGroups and Queues."""

from kbatch.blas import keep_to_one_thread

keep_to_one_thread()
