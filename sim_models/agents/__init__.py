"""What acts on a GPU, cycle by cycle. Agents see arrays only."""
