"""What processes that compute small tables have loaded from the start: they are forked from one that imports this."""

from dagster_project.assets.loading import suspend_gc

with suspend_gc():
    import numpy as np
    import pyarrow as pa
    import zarr  # noqa: F401

    import dagster_project.analysis.chance
    import dagster_project.analysis.fits
    import dagster_project.analysis.temperature
    import dagster_project.assets.catalogue  # noqa: F401
    import geometry.assumptions.phases  # noqa: F401
    from geometry.limits.jacobian import jacobian_norm

    pa.array(np.empty(0))  # which imports pandas, where it is installed
    jacobian_norm(np.ones(2))  # the first kernel that is loaded prepares numba for all
