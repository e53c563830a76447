"""AMPeD's evaluation (ISPASS 2023), and measurements by others, beside the closed form of `sim_models/end_to_end`."""
