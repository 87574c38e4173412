"""Process 1 of a bed's machine, run as a script in fresh namespaces for all but users and cgroups.

It gives the machine its own view of the file system, says which process it is, and then does what
process 1 is for: it collects the orphans. When it is killed, the kernel kills every process of the
machine, and with the last one go its mounts, its network namespaces and its links. So a bed leaves no
processes, whatever happened to whoever made it.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

OVERLAID = ("/usr/local/bin", "/var/lib", "/var/log")  # what the node writes there stays in the bed
READY = "init.pid"


def main(folder: Path, host_name: str) -> None:
    socket.sethostname(host_name)
    for path in OVERLAID:
        _overlay(folder, path)
    _mount("-t", "tmpfs", "tmpfs", "/run")
    pid = os.readlink("/proc/self")  # the number that the outside knows: this is still the outside's /proc
    _mount("-t", "proc", "proc", "/proc")
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    _publish(folder / READY, pid)
    _collect_orphans()


def _overlay(folder: Path, path: str) -> None:
    name = path.strip("/").replace("/", "-")
    upper, work = folder / "host" / name / "upper", folder / "host" / name / "work"
    for each in (upper, work):
        each.mkdir(parents=True, exist_ok=True)
    lower = f"{folder}/standins:{path}" if path == "/usr/local/bin" else path
    _mount("-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", path)


def _mount(*arguments: str) -> None:
    subprocess.run(("mount", *arguments), check=True)


def _publish(file: Path, content: str) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(content)
    unfinished.rename(file)


def _collect_orphans() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main(Path(sys.argv[-1]), sys.argv[-2])
