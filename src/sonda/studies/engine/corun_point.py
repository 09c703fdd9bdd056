"""Company: a point of a study whose workload runs beside other programs.

`with = "cnn --train"` names the other, `with = "cnn + stress-cache"` several, `with = "nobody"` none. The workload is
the first program of a co-run and has the point's own options. A co-run measures in `rounds` with new processes each,
and its intervals are between those: one repetition of such a point is enough.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from sonda.record.errors import SondaError
from sonda.studies.file.settings import name_of, number_of, switch_of
from sonda.studies.file.study import VARIANT, Configuration, Scalar
from sonda.targets.corun.cache_partition import CacheDivision
from sonda.targets.corun.plan import CorunSettings
from sonda.targets.job import option_text

WITH = "with"
SETTINGS = ("cores", "rounds", "timeout", "ways", "partition", "bandwidth", "sweep_ways")
"""Options of a co-run; `seconds` is the length of a window, `probe` has events of the PMU."""
DIVIDING = ("ways", "partition", "bandwidth", "sweep_ways")
SEPARATOR = " + "
NOBODY = "nobody"


def has_company(configuration: Mapping[str, Scalar]) -> bool:
    """Whether other programs run beside the workload."""
    return configuration.get(WITH, NOBODY) != NOBODY


def options_alone(configuration: Configuration) -> Configuration:
    """The options of a workload that has nobody beside it, in a study in which others may have somebody.

    Raises SondaError for an option of a co-run where there is no word of one.
    """
    settings = [key for key in configuration if name_of(key) in SETTINGS]
    if settings and WITH not in configuration:
        raise SondaError(f"{settings[0]} is for programs side by side", "name the others: with = [...]")
    return {key: value for key, value in configuration.items() if key not in (*settings, WITH)}


def participants(configuration: Configuration) -> list[str]:
    """The programs as `sonda corun` takes them, the workload first."""
    words = [str(configuration.get("workload", ""))]
    for key, value in configuration.items():
        if (
            key in ("workload", WITH, VARIANT, "seconds", "probe")
            or name_of(key) in SETTINGS
            or (key, value) == ("on", "cpu")
        ):
            continue
        words += [f"--{key}={option_text(value)}"]
    return [shlex.join(words), *(command.strip() for command in str(configuration[WITH]).split(SEPARATOR))]


def corun_setting_of(configuration: Configuration) -> CorunSettings:
    """How the co-run measures. Raises SondaError for what cannot be."""
    settings = {name_of(key): value for key, value in configuration.items()}
    corun_setting = CorunSettings(
        seconds=float(number_of("seconds", settings.get("seconds", CorunSettings.seconds))),
        repeat=int(number_of("rounds", settings.get("rounds", CorunSettings.repeat), whole=True)),
        timeout=float(number_of("timeout", settings.get("timeout", CorunSettings.timeout))),
        ways=option_text(settings.get("ways", "")),
        partition=option_text(settings.get("partition", "")),
        bandwidth=option_text(settings.get("bandwidth", "")),
        sweep=switch_of("sweep_ways", settings.get("sweep_ways", False)),
        probe=option_text(settings.get("probe", "")),
    )
    corun_setting.check()
    return corun_setting


def cores_of(configuration: Configuration) -> str:
    return option_text(configuration.get("cores", ""))


def missing_partitions(configurations: Iterable[Configuration]) -> list[str]:
    """What the points of a study divide and this machine cannot: `sweep_ways: partitions are left out: ...`."""
    asked: dict[str, str] = {}
    for configuration in configurations:
        words = [key for key in configuration if name_of(key) in DIVIDING and configuration[key]]
        if has_company(configuration) and words and words[0] not in asked:
            asked[words[0]] = CacheDivision(corun_setting_of(configuration)).lacks
    return [f"{key}: partitions will be left out: {reason}" for key, reason in asked.items() if reason]


def check_company(configuration: Configuration) -> None:
    """Raise SondaError for programs or settings that cannot be. Which cores there are is found out point by point."""
    from sonda.targets.corun.launcher import CorunLauncher
    from sonda.targets.instruments.registry import instruments_for

    launcher = CorunLauncher(participants(configuration), setting=corun_setting_of(configuration))
    instruments_for(launcher.setting.probe, launcher)
