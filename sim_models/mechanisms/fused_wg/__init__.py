"""Fused operators: a persistent kernel whose workgroups store at the owners, and add what came."""
