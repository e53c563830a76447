"""How the models' inner loops are compiled.

Without reference counting: no kernel allocates, and passing the tuples of arrays that hold a run's state would
otherwise count references on every array of every call (a factor of twenty, measured on `lockstep.baseline`).
numba's cache does not notice a change in a function that a cached one calls; sim_models/__init__.py therefore keeps
one cache per version of the sources.
"""

from numba import njit

compiled = njit(cache=True, _nrt=False)

#: Lets other threads run Python meanwhile.
unlocked = njit(cache=True, _nrt=False, nogil=True)

#: For small functions: a call passes the descriptor of every array among its arguments.
inlined = njit(cache=True, _nrt=False, forceinline=True)
