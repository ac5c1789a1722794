"""The loop over time steps, and the machines that run it."""
