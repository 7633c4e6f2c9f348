"""The partitions: one study is one partition of the assets of studies, one family one of the asset ``family``.

They are dynamic, so that a study recorded while the web UI or the daemon is running is available at once. Add
partitions here to split work in another way.
https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import dagster as dg

studies = dg.DynamicPartitionsDefinition(name="study")
families = dg.DynamicPartitionsDefinition(name="family")
