"""Findings: the results of each figure in sentences.

One function per figure turns its rows into a finding. Every number in a sentence comes from the rows.

Rows are those of the query that each docstring names. Modules: ``numbers`` (formatting), ``headlines``, and one per
subject.
"""
