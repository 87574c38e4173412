"""What a drill made and did not take away."""

from __future__ import annotations

from datetime import datetime

from gpuctl.audit.finding import Evidence, Finding
from gpuctl.checks.flavor_impact import codes
from gpuctl.facts.kinds import View
from gpuctl.facts.own import RUN
from gpuctl.kueue.drills import LONGEST
from gpuctl.kueue.flavors import is_of_drill
from gpuctl.kueue.standing import age, span


def is_left_behind(made: View, now: datetime) -> bool:
    """Whether a drill made it, longer ago than any drill takes."""
    return is_of_drill(made) and age(made.metadata.creation_timestamp, now) >= LONGEST


def left_behind(made: View, now: datetime) -> Finding:
    """A flavor or ClusterQueue of a drill that is older than any drill takes."""
    run = made.metadata.labels.get(RUN, "RUN")
    when = span(age(made.metadata.creation_timestamp, now))
    return Finding(
        code=codes.LEFT_BEHIND,
        object=made.ref,
        message=f"{made.ref} was made {when} ago by the drill {run}, which did not clean up",
        evidence=(Evidence(made.ref, ".metadata.labels", f"{RUN}={run}"),),
        look=f"kubectl get namespaces,clusterqueues,resourceflavors -l {RUN}={run}",
        remedy=(
            f"`gpuctl undo {run}`, or where its journal is gone the next drill; risk: none, only what the "
            "drill made goes"
        ),
        cause=f"run {run}",
    )
