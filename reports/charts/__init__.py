"""The charts: one function each, tables in, an Altair chart out.

Every chart has a title, axis titles with units, tooltips, and a description for those who do not see it. Colours and
sizes come from ``reports.theme`` by style names.

Tables are the answers to the query that each docstring names; they must have at least one row that can be drawn, unless
the docstring says otherwise. There is one module per subject; what they share stands in ``elements``, ``positions``,
``plane`` and ``labels``.
"""
