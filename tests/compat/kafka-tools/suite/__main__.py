"""Runs the scenarios whose name contains any of the arguments, or all of them."""

import os
import sys

from . import cluster, configs, groups, records, topics  # noqa: F401  (they register scenarios)
from .harness import run

failed = run(sys.argv[1:])
sys.stdout.flush()
# A hung scenario leaves its thread behind; leave without waiting for it.
os._exit(1 if failed else 0)
