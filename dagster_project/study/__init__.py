"""What a study is, where it is stored, and the disk space it needs; imports nothing else of the project."""
