"""Tools that every room uses: errors, output, custom parts, host cores and caches, compiled functions."""

import time

#: A file of the package that changed since then may be newer than the code that this process runs.
STARTED_NS = time.time_ns()
