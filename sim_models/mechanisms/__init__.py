"""Mechanisms: who performs a schedule's transfers on a machine, and what that takes."""
