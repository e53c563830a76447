"""The event level: transfers as flows over shared resources, and engines, hosts and kernels as processes with start
costs. For whole collectives on many GPUs, where the cycle level would take hours."""
