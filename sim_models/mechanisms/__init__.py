"""Ways to hide a collective behind the kernel that feeds it: a file or folder each, and what they share."""
