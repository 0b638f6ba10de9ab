"""Job logs and engine logs on disk, in the reference's form."""
