"""Reports: what the warehouse holds of a study, as charts, words and tables on one page.

``page.write_report`` makes the page. What does not belong here: computing metrics (``geometry``), writing to the
warehouse (``storage``) and the SQL itself (``sql/queries``).
"""
