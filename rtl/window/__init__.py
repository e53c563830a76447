"""The dispatch window, the heads of other GPUs, and inputs that are ready."""
