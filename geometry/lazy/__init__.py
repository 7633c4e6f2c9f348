"""The mathematics over whole studies: lazy Dask arrays, block by block."""
