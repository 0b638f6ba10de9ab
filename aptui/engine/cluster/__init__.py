"""Jobs sent to a Dask cluster in place of the local pool. Only this room speaks Dask."""
