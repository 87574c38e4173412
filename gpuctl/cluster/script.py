"""The shell script that collects everything of a node in one call, and how its output is taken apart.

It finds nvidia-smi in a container, in the driver's own root, or on the host; it runs each command with a time
limit, and ends early when one hangs. It needs nothing but a POSIX shell, and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.output import TIMED_OUT
from gpuctl.nvidia.query import ASKED, PROCESS_COLUMNS

KUBELET: Final = "kubelet-devices"
PCI: Final = "pci"
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia-smi-L": ("-L",),
    "nvidia-smi-query-gpu": (f"--query-gpu={','.join(ASKED)}", "--format=csv,nounits"),
    "nvidia-smi-mig-lgi": ("mig", "-lgi"),
    "nvidia-smi-mig-lci": ("mig", "-lci"),
    "nvidia-smi-mig-lgip": ("mig", "-lgip"),
    "nvidia-smi-mig-lgipp": ("mig", "-lgipp"),
    "nvidia-smi-q-x": ("-q", "-x"),
    "nvidia-smi-compute-apps": (f"--query-compute-apps={','.join(PROCESS_COLUMNS)}", "--format=csv,nounits"),
}
_SCRIPT: Final = r"""
m=@mark@ h=@host@
if timeout -k 5 9 true 2>/dev/null; then T="timeout -k 5 @seconds@"
elif timeout 9 true 2>/dev/null; then T="timeout @seconds@"
else T=
fi
run() {
  n=$1; shift
  printf '\n%s begin %s\n' $m $n; printf '\n%s begin %s\n' $m $n >&2
  "$@"; c=$?
  printf '\n%s end %s %s\n' $m $n $c; printf '\n%s end %s\n' $m $n >&2
  case $c in 124|137) exit 0;; esac
}
there() { [ -e "$1" ] || [ -L "$1" ]; }
list=
command -v nvidia-smi >/dev/null 2>&1 && list=nvidia-smi
ready=$h/run/nvidia/validations/driver-ready
told=
[ -r $ready ] && told=$(sed -n 's/^NVIDIA_DRIVER_ROOT=//p' $ready | tr -d "\"'")
for r in ${told:+"$h$told"} /driver-root /run/nvidia/driver $h/run/nvidia/driver ${h:-/host}; do
  r=${r%/}
  [ -n "$r" ] || continue
  for p in /usr/bin /usr/sbin /bin /sbin /usr/local/bin /opt/bin /usr/lib/wsl/lib \
    /home/kubernetes/bin/nvidia/bin
  do
    there "$r$p/nvidia-smi" || continue
    l=
    case $p in
      */wsl/lib) l=$p;;
      */nvidia/bin) l=${p%/bin}/lib64;;
      /usr/local/bin) l=/usr/local/lib;;
    esac
    list="$list
${l:+env LD_LIBRARY_PATH=$l }chroot $r $p/nvidia-smi"
  done
done
smi=nvidia-smi first= count=0
IFS='
'
for c in $list; do count=$((count + 1)); [ -n "$first" ] || first=$c; done
[ -n "$first" ] && smi=$first
if [ $count -gt 1 ]; then
  for c in $list; do
    IFS=' '
    case "$($T $c -L 2>&1)" in *"GPU "[0-9]*) smi=$c; break;; esac
  done
fi
IFS=' '
printf '\n%s with %s\n' $m "$smi"
pci() {
  lspci -Dn -d 10de: 2>/dev/null && return
  for d in /sys/bus/pci/devices/*; do
    read -r v 2>/dev/null < "$d/vendor" && [ "$v" = 0x10de ] || continue
    read -r k < "$d/class"; read -r i < "$d/device"
    k=${k#0x}; echo "${d##*/} ${k%??}: 10de:${i#0x}"
  done
  return 0
}
devices() {
  for f in $h /proc/1/root; do
    cat $f/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint 2>/dev/null && return
  done
  return 1
}
@runs@
exit 0
"""


def script(mark: str, wanted: Collection[str], seconds: int, *, host: str = "", merged: bool = False) -> str:
    """The script for these commands. `mark` stands around each answer; `host` is where the host's root is.

    `merged`: standard error comes with standard output, as in a container's log.
    """
    text = _SCRIPT.replace("@mark@", mark).replace("@host@", host or "''").replace("@seconds@", str(seconds))
    text = text.replace("@runs@", "\n".join(_run(name) for name in wanted))
    return f"exec 2>&1\n{text}" if merged else text


def _run(name: str) -> str:
    if name in (PCI, KUBELET):
        return f"run {name} {'pci' if name == PCI else 'devices'}"
    return f"run {name} $T $smi {' '.join(ARGUMENTS[name])}"


def place_of(stdout: str, mark: str) -> str:
    """By which command nvidia-smi was called."""
    found = re.search(rf"^{mark} with (.*)$", stdout, re.MULTILINE)
    return found[1] if found else ""


def taken_apart(stdout: str, stderr: str, mark: str) -> dict[str, Output]:
    """The answers by command. One that has no end is left out."""
    errors = {name: text for name, text, _ in _parts(stderr, mark)}
    return {
        name: Output(text, errors.get(name, ""), int(code or 0)) for name, text, code in _parts(stdout, mark)
    }


def _parts(text: str, mark: str) -> list[tuple[str, str, str]]:
    text = _without_marked_errors(text, mark)
    pattern = rf"^{mark} begin (\S+)\n(.*?)\n?^{mark} end \1(?: (\d+))?$"
    return re.findall(pattern, text, re.MULTILINE | re.DOTALL)


def _without_marked_errors(text: str, mark: str) -> str:
    """Where both streams were merged, the marks of standard error stand in pairs with those of output."""
    text = re.sub(rf"(^{mark} begin (\S+)\n)\n?{mark} begin \2\n", r"\1", text, flags=re.MULTILINE)
    return re.sub(rf"(^{mark} end (\S+) \d+)\n\n?{mark} end \2$", r"\1", text, flags=re.MULTILINE)


def hung(answers: Mapping[str, Output]) -> bool:
    """Whether a command had to be ended by force, so that the later ones were not run."""
    return any(answer.code in TIMED_OUT for answer in answers.values())
