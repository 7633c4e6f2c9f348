"""The command line: arguments, output, and running assets in this process."""
