"""Tools that every room uses: errors, output, custom parts, host cores and caches, compiled functions."""
