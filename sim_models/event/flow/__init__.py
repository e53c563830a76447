"""The event level: transfers as flows over shared resources, for whole collectives on many GPUs.

Engines, hosts and kernels are processes with start costs. The cycle level would take hours for such runs.
"""
