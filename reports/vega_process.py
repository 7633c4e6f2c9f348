"""A program that draws charts: a version of Vega-Lite and specifications as JSON from stdin, PNGs in base 64 to stdout.

It imports nothing of this package, which would take longer than the charts.
"""

import json
import sys
from base64 import b64encode

import vl_convert

if __name__ == "__main__":
    version, specs = json.load(sys.stdin)
    json.dump([b64encode(vl_convert.vegalite_to_png(spec, vl_version=version)).decode() for spec in specs], sys.stdout)
