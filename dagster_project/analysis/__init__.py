"""What computes the tables of a study from its stores and from other tables; knows no assets and no Dagster."""
