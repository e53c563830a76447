"""Simulations as tasks: what each depends on, how long it takes, its result on disk, and the pool that runs them."""
