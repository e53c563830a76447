"""The dispatch window, the exchange of its heads, and the ready table."""
