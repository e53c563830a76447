"""Studies that runs are put together to: techniques, losses, results and reports. It never touches a run's state."""
