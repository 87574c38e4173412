"""What GPU operator deploys beside the driver: DaemonSets that come and go by the labels of a node, and
MIG manager's configurations.

The controller manager's own DaemonSet controller takes a pod away when its label is paused, and brings it
back; kwok runs it. What the pods do is played by migworld.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .simulated import MADE_FOR, NAMESPACE, PREFIX

PLUGIN = "nvidia-device-plugin-daemonset"
DISCOVERY = "gpu-feature-discovery"
EXPORTER = "nvidia-dcgm-exporter"
VALIDATOR = "nvidia-operator-validator"
MANAGER = "nvidia-mig-manager"
MANAGER_CONTAINER = "nvidia-mig-manager"
REBOOTS = "gpuctl-bed/mig-manager-reboots"  # node label: "true" where MIG manager runs WITH_REBOOT
CONFIG_MAP = "default-mig-parted-config"
CONFIG_KEY = "config.yaml"
CONFIG_FILE = "/mig-parted-config/config.yaml"
# In the order in which MIG manager waits for them.
PAUSED = {"device-plugin": PLUGIN, "gpu-feature-discovery": DISCOVERY, "dcgm-exporter": EXPORTER}
DAEMON_SETS = {**PAUSED, "operator-validator": VALIDATOR}

CONFIG = """\
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-enabled:
  - {devices: all, mig-enabled: true, mig-devices: {}}
  all-1g.5gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}}
  all-1g.5gb.me:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.5gb+me": 1}}
  all-2g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {"2g.10gb": 3}}
  all-3g.20gb:
  - {devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}}
  all-7g.40gb:
  - {devices: all, mig-enabled: true, mig-devices: {"7g.40gb": 1}}
  all-1g.10gb:
  - {device-filter: ["0x20B010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 4}}
  - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  all-1g.10gb.me:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb+me": 1}}
  all-1g.20gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.20gb": 4}}
  all-2g.20gb:
  - {devices: all, mig-enabled: true, mig-devices: {"2g.20gb": 3}}
  all-3g.40gb:
  - {devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 2}}
  all-4g.40gb:
  - {devices: all, mig-enabled: true, mig-devices: {"4g.40gb": 1}}
  all-7g.80gb:
  - {devices: all, mig-enabled: true, mig-devices: {"7g.80gb": 1}}
  all-1g.6gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.6gb": 4}}
  all-2g.12gb:
  - {devices: all, mig-enabled: true, mig-devices: {"2g.12gb": 2}}
  all-balanced:
  - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true,
     mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}}
  - {device-filter: ["0x20B010DE"], devices: all, mig-enabled: true,
     mig-devices: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}}
  - {device-filter: ["0x20B710DE"], devices: all, mig-enabled: true,
     mig-devices: {"1g.6gb": 2, "2g.12gb": 1}}
  first-only:
  - {devices: [0], mig-enabled: true, mig-devices: {"1g.10gb": 7}}
"""


def daemon_sets(image: str) -> list[dict[str, Any]]:
    """All of them. MIG manager has two, of which a node's label chooses one."""
    operands = [_daemon_set(name, {_deploy(label): "true"}, image) for label, name in DAEMON_SETS.items()]
    return [*operands, *(_manager(reboots, image) for reboots in (False, True))]


def config_map(text: str = CONFIG) -> dict[str, Any]:
    """MIG manager's configurations."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {CONFIG_KEY: text},
    }


def manager_set(reboots: bool) -> str:
    """The name of MIG manager's DaemonSet."""
    return f"{MANAGER}-with-reboot" if reboots else MANAGER


def _deploy(operand: str) -> str:
    return f"{PREFIX}/gpu.deploy.{operand}"


def _manager(reboots: bool, image: str) -> dict[str, Any]:
    flag = str(reboots).lower()
    selector = {_deploy("mig-manager"): "true", REBOOTS: flag}
    made = _daemon_set(manager_set(reboots), selector, image, app=MANAGER)
    container, spec = made["spec"]["template"]["spec"]["containers"][0], made["spec"]["template"]["spec"]
    container["name"] = MANAGER_CONTAINER
    container["env"] = [
        {"name": "WITH_REBOOT", "value": flag},
        {"name": "CONFIG_FILE", "value": CONFIG_FILE},
        {"name": "DEFAULT_GPU_CLIENTS_NAMESPACE", "value": NAMESPACE},
    ]
    container["volumeMounts"] = [{"name": "mig-parted-config", "mountPath": CONFIG_FILE.rpartition("/")[0]}]
    spec |= {"hostPID": True, "volumes": [{"name": "mig-parted-config", "configMap": {"name": CONFIG_MAP}}]}
    return made


def _daemon_set(name: str, selector: Mapping[str, str], image: str, app: str = "") -> dict[str, Any]:
    """A DaemonSet as GPU operator writes it, shortened."""
    labels = {"app": app or name, "gpuctl-bed/daemon-set": name}
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {**selector, MADE_FOR: ""},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "containers": [{"name": name, "image": image}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": app or name}},
        "spec": {
            "selector": {"matchLabels": {"gpuctl-bed/daemon-set": name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": pod,
        },
    }
