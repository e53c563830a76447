"""The Tracker: counts memory updates and sends triggers."""
