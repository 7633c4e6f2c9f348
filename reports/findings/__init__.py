"""How numbers and verdicts are worded, by pages, tables of claims and the command line alike."""
