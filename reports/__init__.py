"""Reports: the results of a study as charts, sentences and tables on one HTML page.

``page.write_report`` writes the page.
"""
