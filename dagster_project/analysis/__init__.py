"""What computes the small tables and the claims of a study from its stores; no Dagster, no records of assets."""
