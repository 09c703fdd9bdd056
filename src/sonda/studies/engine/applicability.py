"""Points of a study that would be the same as others: what sets them apart means nothing where they run.

Only what a variant or an axis sets counts. What all points share and one of them has no use for is left out there, and
its run says so.
"""

from __future__ import annotations

from sonda.analysis import reasons
from sonda.record.errors import SondaError
from sonda.studies.engine.corun_point import has_company, options_alone
from sonda.studies.engine.plan import NODE, is_simulated, needs_gpu, options
from sonda.studies.file.study import VARIANT, Configuration, Study
from sonda.targets.applicability import describe_inapplicable, inapplicable_settings
from sonda.targets.job import make_job
from sonda.targets.node import kind_has_gpu


def why_not(study: Study, configuration: Configuration) -> str:
    """Why a point of the study need not be measured, in the words of the settings; '' for one that must."""
    if is_simulated(configuration) or has_company(configuration):
        return ""
    if NODE in configuration and needs_gpu(configuration) and not kind_has_gpu(str(configuration[NODE])):
        return reasons.NOT_APPLICABLE.format(reasons.NODES_WITHOUT_GPU)
    own = {*study.axes, *study.variants.get(str(configuration.get(VARIANT, "")), {})}
    try:
        without = inapplicable_settings(make_job(options_alone(options(configuration))))
    except SondaError:
        return ""  # what is wrong with it is said when its turn comes
    chosen = {name: reason for name, reason in without.items() if {name, name.replace("_", "-")} & own}
    return reasons.NOT_APPLICABLE.format("; ".join(describe_inapplicable(chosen))) if chosen else ""
