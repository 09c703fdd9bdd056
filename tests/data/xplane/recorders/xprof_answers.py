"""Write what xprof says about the profiles of a directory: steps and operations, as JSON to the standard output."""

import gzip
import json
import sys
import tempfile
from pathlib import Path

from xprof.convert.raw_to_tool_data import xspace_to_tool_data


def tables(file, tool):
    return json.loads(xspace_to_tool_data([str(file)], tool, {})[0])


def rows(table):
    names = [column["id"] for column in table["cols"]]
    return [dict(zip(names, (cell.get("v") for cell in row["c"]), strict=False)) for row in table["rows"]]


answers = {}
for path in sorted(Path(sys.argv[1]).glob("*.xplane.pb.gz")):
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "host.xplane.pb"
        file.write_bytes(gzip.decompress(path.read_bytes()))
        steps = [row for table in tables(file, "input_pipeline_analyzer") for row in rows(table) if "stepnum" in row]
        operations = [row for row in rows(tables(file, "framework_op_stats")[0]) if row["operation"] != "IDLE"]
        answers[path.name] = {
            "steps": [[row["stepnum"], row["stepTimeMs"]] for row in steps],
            "operations": [
                [row["host_or_device"], row["operation"], row["type"], row["occurrences"], row["total_time"],
                 row["total_self_time"]]
                for row in operations
            ],
        }  # fmt: skip
json.dump(answers, sys.stdout, indent=0)
