"""Workloads and measurements: models with seeded weights, timed beside other ways to run them."""
