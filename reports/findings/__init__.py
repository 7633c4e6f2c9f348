"""What the numbers say, in sentences.

Holds one function per figure that turns its rows into a finding, and the writing of numbers. Every number in a sentence
comes from the rows.

Rows are those of the query that each docstring names. Modules: ``numbers`` (writing them), ``headlines``, and one per
subject.
"""
