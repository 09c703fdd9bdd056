"""A resctrl in memory that acts as the kernel does: groups with their files, masks judged, tasks moved, reasons given.

Messages and errnos follow fs/resctrl (ctrlmondata.c, rdtgroup.c) as far as Sonda can meet them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from places import DATA

TREES = DATA / "resctrl"


class Group:
    """One group: its schemata by line and domain, the tasks in it, what its counters answer."""

    def __init__(self, parent: str | None, lines: dict[str, dict[int, str]]) -> None:
        self.parent = parent
        """The control group of a monitoring group; None for control groups."""
        self.lines = {name: dict(values) for name, values in lines.items()}
        self.mode = "shareable"
        self.counters: dict[str, dict[str, str]] = {}


class FakeResctrl:
    """Starts as a tree under `tests/data/resctrl`."""

    def __init__(self, tree: str, alive: set[int] | None = None) -> None:
        root = TREES / tree
        self.info = {
            str(path.relative_to(root / "info")): path.read_text()
            for path in (root / "info").rglob("*")
            if path.is_file()
        }
        self.padded = root.name.startswith("amd")
        self.lines: dict[str, dict[int, str]] = {}
        if (root / "schemata").exists():
            for line in (root / "schemata").read_text().splitlines():
                name, _, rest = line.strip().partition(":")
                self.lines[name] = {int(one.split("=")[0]): one.split("=")[1].strip() for one in rest.split(";")}
        self.groups = {"": Group(None, self.lines)}
        self.groups[""].counters = {
            path.name: {one.name: one.read_text() for one in path.iterdir()}
            for path in sorted((root / "mon_data").glob("*"))
        }
        self.tasks: dict[int, tuple[str, str]] = {}
        """Control and monitoring group of every task that was moved; all others are in the default ones."""
        self.alive = alive
        """Tasks that exist; None: any."""
        self.status = "ok"
        self.commands: list[tuple[str, str]] = []
        """Every write, mkdir and rmdir, in order."""
        self.locked = 0
        self.refuse: dict[str, int] = {}
        """errno that the next mkdir of a path gives, once for each."""
        self.limbo = 0
        """How many times mkdir answers that ids are still busy."""

    # ---- what Sonda calls -------------------------------------------------------------------------------------

    def read(self, path: str) -> str:
        group, name = self._split(path)
        if path.startswith("info/"):
            if path == "info/last_cmd_status":
                return f"{self.status}\n"
            if path.removeprefix("info/") in self.info:
                return self.info[path.removeprefix("info/")]
        elif group is not None and name == "schemata" and self.lines and self.groups[group].parent is None:
            return self._schemata(group)
        elif group is not None and name == "tasks":
            return "".join(f"{task}\n" for task, where in sorted(self.tasks.items()) if group in where)
        elif group is not None and name.startswith("mon_data/"):
            _, domain, feature = name.split("/")
            found = self.groups[group].counters.get(domain, {}).get(feature)
            if found is not None:
                return found
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    def write(self, path: str, text: str) -> None:
        self.commands.append((path, text))
        self.status = "ok"
        group, name = self._split(path)
        if group is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if name == "schemata" and self.lines and self.groups[group].parent is None:
            self._write_schemata(self.groups[group], text)
        elif name == "tasks":
            self._write_task(group, text)
        elif name == "mode" and text.strip() == "exclusive":
            self._make_exclusive(group)
        else:
            raise PermissionError(errno.EACCES, "Permission denied")

    def names(self, path: str) -> list[str]:
        if path == "info":
            return sorted({name.split("/")[0] for name in self.info})
        group, name = self._split(path + "/") if path else ("", "")
        if group is None:
            return []
        if name == "mon_data/":
            return sorted(self.groups[group].counters)
        if name == "mon_groups/":
            return sorted(other.rpartition("/")[2] for other, one in self.groups.items() if one.parent == group)
        if name:
            return []
        below = [other for other in self.groups if other and "/" not in other] if not group else []
        files = ["cpus", "cpus_list", "mon_data", "mon_groups", "tasks"]
        return sorted([*files, *below, *(["info"] if not group else []), *(["schemata", "mode"] if self.lines else [])])

    def make(self, path: str) -> None:
        self.commands.append(("mkdir", path))
        self.status = "ok"
        if path in self.refuse:
            raise OSError(self.refuse.pop(path), "refused")
        if path in self.groups or path in ("info", "mon_groups", "mon_data"):
            raise FileExistsError(errno.EEXIST, "File exists")
        parent, above, name = path.rpartition("mon_groups/")
        if above:
            parent = parent.rstrip("/")
            if parent not in self.groups or not self.groups[""].counters or "/" in name:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            self._take_monitor()
            made = Group(parent, {})
        else:
            if "/" in path or not self.lines:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            limits = [int(text) for name, text in self.info.items() if name.endswith("num_closids")]
            if len([one for one in self.groups.values() if one.parent is None]) >= min(limits):
                self._refuse("Out of CLOSIDs", errno.ENOSPC)
            if self.groups[""].counters:
                self._take_monitor()
            made = Group(None, self._fresh())
        made.counters = {
            domain: dict.fromkeys(features, "0\n") for domain, features in self.groups[""].counters.items()
        }
        self.groups[path] = made

    def remove(self, path: str) -> None:
        self.commands.append(("rmdir", path))
        self.status = "ok"
        if path not in self.groups:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if not path:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        group = self.groups.pop(path)
        if group.parent is not None:
            self.tasks = {t: (c, "" if m == path else m) for t, (c, m) in self.tasks.items()}
            return
        for other in [name for name, one in self.groups.items() if one.parent == path]:
            del self.groups[other]
        self.tasks = {task: where for task, where in self.tasks.items() if where[0] != path}

    @contextmanager
    def lock(self) -> Iterator[None]:
        assert not self.locked, "flock of two descriptors of one process would wait for itself"
        self.locked += 1
        try:
            yield
        finally:
            self.locked -= 1

    # ---- what the kernel does ---------------------------------------------------------------------------------

    def _split(self, path: str) -> tuple[str | None, str]:
        """The longest group that a path begins with, and the rest."""
        for group in sorted(self.groups, key=len, reverse=True):
            if not group:
                return "", path
            if path.startswith(f"{group}/"):
                return group, path[len(group) + 1 :]
        return None, path

    def _schemata(self, group: str) -> str:
        lines = []
        for name, values in self.groups[group].lines.items():
            width = 4 if self.padded and name == "MB" else 0
            lines.append(f"{name:>6}:" + ";".join(f"{domain}={value:>{width}}" for domain, value in values.items()))
        return "\n".join(lines) + "\n"

    def _fresh(self) -> dict[str, dict[int, str]]:
        """A new group may use everything that no exclusive group holds."""
        fresh = {name: dict(values) for name, values in self.lines.items()}
        for name, values in fresh.items():
            for domain in values:
                if name == "MB":
                    continue
                free = int(self.info[f"{name}/cbm_mask"], 16)
                for other in self.groups.values():
                    if other.parent is None and other.mode == "exclusive":
                        free &= ~int(other.lines[name][domain], 16)
                values[domain] = f"{free:x}"
        return fresh

    def _take_monitor(self) -> None:
        if self.limbo:
            self.limbo -= 1
            raise OSError(errno.EBUSY, "Device or resource busy")
        if len(self.groups) >= int(self.info["L3_MON/num_rmids"]):
            self._refuse("Out of RMIDs", errno.ENOSPC)

    def _refuse(self, reason: str, number: int = errno.EINVAL) -> None:
        self.status = reason
        raise OSError(number, {errno.EINVAL: "Invalid argument", errno.ENOSPC: "No space left on device"}[number])

    def _write_schemata(self, group: Group, text: str) -> None:
        if not text.endswith("\n"):
            raise OSError(errno.EINVAL, "Invalid argument")
        staged: list[tuple[str, int, str]] = []
        for line in text.splitlines():
            name, colon, rest = line.strip().partition(":")
            if not colon:
                self._refuse("Missing ':'")
            if name not in group.lines:
                self._refuse(f"Unknown or unsupported resource name '{name}'")
            seen: set[int] = set()
            for entry in rest.split(";"):
                domain, equals, value = entry.partition("=")
                if not equals or not domain.strip().isdigit():
                    self._refuse("Missing '=' or non-numeric domain")
                number = int(domain)
                if number not in group.lines[name]:
                    raise OSError(errno.EINVAL, "Invalid argument")
                if number in seen:
                    self._refuse(f"Duplicate domain {number}")
                seen.add(number)
                staged.append((name, number, self._value(group, name, number, value.strip())))
        for name, number, value in staged:
            group.lines[name][number] = value

    def _value(self, group: Group, name: str, domain: int, text: str) -> str:
        if name == "MB":
            if not text.isdigit():
                self._refuse(f"Invalid MB value {text}")
            least, most = int(self.info["MB/min_bandwidth"]), 2048 if self.padded else 100
            if not least <= int(text) <= most:
                self._refuse(f"MB value {text} out of range [{least},{most}]")
            step = int(self.info["MB/bandwidth_gran"])
            return str(-(-int(text) // step) * step)
        try:
            mask = int(text, 16)
        except ValueError:
            self._refuse(f"Non-hex character in the mask {text}")
        whole = int(self.info[f"{name}/cbm_mask"], 16)
        least = int(self.info[f"{name}/min_cbm_bits"])
        if mask == 0 or mask > whole:
            self._refuse("Mask out of range")
        if self.info[f"{name}/sparse_masks"].strip() == "0" and "01" in f"{mask:b}":
            self._refuse(f"The mask {mask:x} has non-consecutive 1-bits")
        if mask.bit_count() < least:
            self._refuse(f"Need at least {least} bits in the mask")
        for other in self.groups.values():
            if other is not group and other.parent is None and int(other.lines[name][domain], 16) & mask:
                if other.mode == "exclusive":
                    self._refuse("Overlaps with exclusive group")
                if group.mode == "exclusive":
                    self._refuse("Overlaps with other group")
        return f"{mask:x}"

    def _make_exclusive(self, name: str) -> None:
        group = self.groups[name]
        for line, values in group.lines.items():
            for domain, value in values.items():
                for other in self.groups.values():
                    if line == "MB" or other is group or other.parent is not None:
                        continue
                    if int(other.lines[line][domain], 16) & int(value, 16):
                        self._refuse("Schemata overlaps")
        group.mode = "exclusive"

    def _write_task(self, group: str, text: str) -> None:
        if not text.strip().isdigit():
            self._refuse(f"Task list parsing error pid {text.strip()}")
        task = int(text)
        if self.alive is not None and task not in self.alive:
            self.status = f"No task {task}"
            raise ProcessLookupError(errno.ESRCH, "No such process")
        control = self.tasks.get(task, ("", ""))[0]
        parent = self.groups[group].parent
        if parent is None:
            self.tasks[task] = (group, "")  # and out of its monitoring group
        elif parent != control:
            self._refuse("Can't move task to different control group")
        else:
            self.tasks[task] = (control, group)
