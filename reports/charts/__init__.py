"""Charts: one function each, which takes tables and returns an Altair chart.

Every chart has a title, axis titles with units, tooltips, and a description for readers who cannot see it. Colours and
sizes come from ``reports.theme`` by style names.

Tables are the answers to the query that each docstring names; they must have at least one row that can be drawn, unless
the docstring says otherwise. There is one module per subject; shared parts are in ``elements``, ``positions``,
``plane`` and ``labels``.
"""
