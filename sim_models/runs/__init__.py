"""One run from machine, schedule and mechanism: how it is built, driven and checked."""
