"""Dividing last-level cache and memory bandwidth for an experiment: what this machine can divide, and why not more."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from sonda.probes import sensors
from sonda.probes.cache_partition.partition import CacheShares, Partition, open_partition
from sonda.probes.cache_partition.resctrl import Resctrl, ResctrlCapabilities, read_cache_domain
from sonda.probes.cache_partition.resctrl_files import MOUNTED, MountedFiles, ResctrlFiles
from sonda.record.run import ProbeState
from sonda.record.target import CorunCache
from sonda.targets.corun.plan import Cast, CorunSettings, check_shares, plan_partitions


class CacheDivision:
    """What resctrl divides for this experiment, and why it cannot divide the rest."""

    def __init__(self, setting: CorunSettings, files: ResctrlFiles | None = None) -> None:
        """`files` is the resctrl to use, the machine's unless given."""
        self.setting = setting
        self.files = files
        self.capabilities: ResctrlCapabilities | None = None
        self.reason = ""
        self.remedy = ""
        self.partitions: list[tuple[str, CacheShares]] = []
        self.notes: list[str] = []
        if files is None:
            state = sensors.check_resctrl()
            # A machine that only counts has groups to watch, and nothing to divide.
            usable = state.state == "ok" or os.access(MOUNTED / "mon_groups", os.W_OK)
            self.reason, self.remedy = ("", "") if usable else (state.detail, state.remedy)
            self.files = MountedFiles() if usable else None
        if self.files is not None:
            self.capabilities = Resctrl(self.files).capabilities
        self.lacks = self._lacks() if setting.divides else ""
        """Why what was asked for cannot be divided here."""
        if self.lacks:
            self.notes.append(f"no partition was measured: {self.lacks}")

    def divide(self, cast: Cast) -> None:
        """Find the partitions that were asked for.

        Raises SondaError for what this processor refuses. Shares that no processor could give are refused even where
        nothing can be divided.
        """
        check_shares(self.setting, cast.names)
        if self.setting.divides and not self.lacks and self.capabilities is not None:
            self.partitions = plan_partitions(self.setting, cast.names, self.capabilities.cache)
            for _, shares in self.partitions:
                shares.check(self.capabilities)

    def _lacks(self) -> str:
        if self.capabilities is None:
            return f"{self.reason}; {self.remedy}" if self.remedy else self.reason
        if (self.setting.ways or self.setting.partition or self.setting.sweep) and self.capabilities.cache is None:
            return "this processor cannot divide its last-level cache (no L3 in resctrl's schemata)"
        if self.setting.bandwidth and self.capabilities.bandwidth is None:
            return "this processor cannot throttle memory bandwidth (no MB in resctrl's schemata)"
        return ""

    def open(self, stack: ExitStack, root: Path, cast: Cast) -> Partition | None:
        """Open resctrl groups until the stack ends; None where nothing is divided and nothing can be monitored."""
        if self.files is None or self.capabilities is None or not (self.partitions or self.capabilities.features):
            return None
        used = {read_cache_domain(core) for participant in cast.participants for core in participant.cores}
        control = self.capabilities.cache or self.capabilities.bandwidth
        available = control.domains if control else ()
        domains = sorted(domain for domain in used if domain in available) or list(available)
        return stack.enter_context(open_partition(self.files, root, cast.names, domains, bool(self.partitions)))

    def describe(self) -> CorunCache:
        """How the cache was divided, for `run.json`, and why not."""
        cache = self.capabilities.cache if self.capabilities else None
        return CorunCache(
            partitions={label: {**shares.masks} for label, shares in self.partitions},
            ways=cache.ways if cache else None,
            reason=self.lacks,
            monitor_reason=self.reason if self.capabilities is None else "",
        )

    def states(self) -> list[ProbeState]:
        if self.capabilities is None:
            return [ProbeState("cache partitions", "missing", self.reason, self.remedy)]
        return [ProbeState("cache partitions", "ok")]
