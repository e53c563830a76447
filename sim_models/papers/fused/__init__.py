"""The evaluation of the fused computation-collective operators."""
