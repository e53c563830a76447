"""AMPeD's evaluation (ISPASS 2023), and measurements by others, beside the closed form of `analytic/end_to_end`."""
