"""Reports: what the warehouse holds of a study, as charts, words and tables on one page.

``page.write_report`` makes the page.
"""
