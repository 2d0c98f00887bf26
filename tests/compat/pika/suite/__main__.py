"""Runs the scenarios whose name contains any of the arguments, or all of them."""

import os
import sys

from . import connections, consuming, dead_letters, exchanges, kafka, publishing, queues, quorum, replies, restarting, streams  # noqa: F401  (they register scenarios)
from .harness import run

failed = run(sys.argv[1:])
# A hung scenario leaves its thread behind; leave without waiting for it.
sys.stdout.flush()
os._exit(1 if failed else 0)
