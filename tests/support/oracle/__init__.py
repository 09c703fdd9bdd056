"""A plain model of STONNE that steps every block in every cycle: the second source for the fast engines, used by tests.

Nothing here is computed ahead: packages wait in queues, move over one-slot links and carry real values, so that the
same run gives the cycles, the activity counters and the numerical result. Slow on purpose; keep cases small.
"""
