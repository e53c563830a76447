"""Formal properties of the blocks in `rtl/`, each with broken designs that it must catch: `make formal`."""
