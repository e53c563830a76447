"""What can be run: a record per technique, a file each, in a table."""
