"""A program that stands in for Nsight Compute, and tables as it would write them."""

from __future__ import annotations

from pathlib import Path

from sonda.imports.ncu.tables import LEADING

VERSION = "NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880) (public-release)"
ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
"""PyTorch's addition, mangled."""
ADDED = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
"""The same as torch.profiler wrote it on an H200."""


def stand_in(folder: Path, *tables: str, code: int = 0, version: str = VERSION, first: str = "") -> str:
    """A program named ncu that writes one of the tables into the log every time that it is run.

    Its command lines go to `asked`, a line each; what it reads from stdin goes to `stdin`. `first` is done before.
    """
    for number, table in enumerate(tables):
        (folder / f"table{number}").write_text(table, encoding="utf-8")
    path = folder / "ncu"
    path.write_text(
        f"""#!/bin/sh
if [ "$1" = --version ]; then printf '%b\\n' '{version}'; exit 0; fi
echo "$*" >> '{folder}/asked'
cat > '{folder}/stdin'
number=$(($(wc -l < '{folder}/asked') - 1))
while [ $# -gt 0 ]; do
  if [ "$1" = --log-file ]; then log="$2"; fi
  shift
done
{first}
if [ -f "{folder}/table$number" ]; then cat "{folder}/table$number" > "$log"; fi
exit {code}
"""
    )
    path.chmod(0o755)
    return str(path)


def asked(folder: Path) -> list[str]:
    """Command lines that the stand-in was given."""
    return (folder / "asked").read_text().splitlines()


def table(columns: dict[str, str], *launches: tuple[str, tuple[str, ...]], process: str = "1") -> str:
    """A table in the shape of --page raw: units by metric, then a kernel and its values per launch."""
    head = ",".join(f'"{name}"' for name in (*LEADING, *columns))
    units = ",".join(['""'] * len(LEADING) + [f'"{unit}"' for unit in columns.values()])
    rows = [
        ",".join(f'"{field}"' for field in (str(number), process, "python", "host", kernel, "1", "7", "(128, 1, 1)",
                                            "(64, 1, 1)", "0", "9.0", *values))
        for number, (kernel, values) in enumerate(launches)
    ]  # fmt: skip
    return "\n".join(["==PROF== Connected to process 1 (python)", head, units, *rows]) + "\n"


def long_table(columns: dict[str, str], *launches: tuple[str, tuple[str, ...]], process: str = "1") -> str:
    """The same in the shape of --page details, with the comma behind every value that ncu 2025.3.1 writes."""
    further = ("Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type",
               "Rule Description", "Estimated Speedup Type", "Estimated Speedup")  # fmt: skip
    lines = [",".join(f'"{name}"' for name in (*LEADING, *further))]
    for number, (kernel, values) in enumerate(launches):
        start = (str(number), process, "python", "host", kernel, "1", "7", "(128, 1, 1)", "(64, 1, 1)", "0", "9.0")
        for (name, unit), value in zip(columns.items(), values, strict=True):
            lines.append(
                ",".join(f'"{field}"' for field in (*start, "Command line profiler metrics", name, unit, value))
            )
            lines[-1] += ","
    return "\n".join(["==PROF== Connected to process 1 (python)", *lines]) + "\n"
