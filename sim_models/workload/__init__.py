"""What is computed: models, operators, kernel tables, routing of experts, readers of other tools' files."""
