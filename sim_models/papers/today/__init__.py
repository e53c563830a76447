"""Track & Trigger on GPUs of today, by models of what their libraries do."""
