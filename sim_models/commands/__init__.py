"""One file per subcommand of `t3`. Heavy imports belong inside the functions: `t3 --help` must be instant."""
