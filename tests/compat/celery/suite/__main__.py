"""Runs the scenarios whose name contains any of the arguments, or all of them."""

import os
import sys

from .harness import clean, directory, run

path = directory()
from . import scenarios, tasks  # noqa: E402  (the run must have its name first)

try:
    failed = run(sys.argv[1:])
finally:
    scenarios.close()
    with tasks.app.connection_or_acquire() as connection, connection.channel() as channel:
        for queue in tasks.QUEUES.values():
            queue(channel).delete()
            queue.exchange(channel).delete()
clean(path, failed)
sys.stdout.flush()
os._exit(1 if failed else 0)
