"""Workloads from other tools' files: a Hugging Face config.json, a Chakra execution trace."""
