"""Safe readers and writers of file formats that several builders share, and of the file names in such files."""
