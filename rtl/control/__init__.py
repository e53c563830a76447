"""The bus, its counters and errors, soft reset and watchdog."""
