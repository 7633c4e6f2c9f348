"""The partitions: one study is one partition.

They are dynamic, so that a study recorded while the web UI or the daemon runs is there at once. Add here when work is
to be split another way.
https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import dagster as dg

studies = dg.DynamicPartitionsDefinition(name="study")
