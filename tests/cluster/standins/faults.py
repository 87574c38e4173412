"""What nvidia-smi says when it cannot answer: the texts and exit codes that have been seen."""

from __future__ import annotations

from tests.cluster.standins.state import Fault

_COMM = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
_MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.105\n"
_PENDING = (
    "Warning: MIG mode is in pending disable state for GPU 00000000:C1:00.0:In use by another client\n"
    "00000000:C1:00.0 is currently being used by one or more other processes (e.g. CUDA application or a "
    "monitoring application such as another instance of nvidia-smi). Please first kill all processes using "
    "the device and retry the command or reboot the system to make MIG mode effective.\nAll done.\n"
)
_RESET = (
    "GPU 00000000:C1:00.0 is currently in use by another process.\n\n"
    "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA "
    "application, graphics application such as an X server, or a monitoring application such as another "
    "instance of nvidia-smi). Please first kill all processes using this device and all compute applications "
    "running in the system.\n"
)
_IN_USE = (
    "Unable to destroy GPU instance ID  3 from GPU  0: In use by another client\n"
    "Failed to destroy GPU instances: In use by another client\n"
)
_HANDLE = "Unable to determine the device handle for GPU{}: {}\nNo devices were found\n"

DRIVER_DOWN = Fault(stdout=_COMM, exit=9)
NO_DEVICES = Fault(stdout="No devices were found\n", exit=6)
NO_DEVICES_L = Fault(stdout="No devices found.\n", exit=6)
VERSION_MISMATCH = Fault(stdout=_MISMATCH, exit=18)
NVML_UNKNOWN = Fault(stdout="Failed to initialize NVML: Unknown Error\n", exit=255)
GPU_ERROR = Fault(stdout=_HANDLE.format("0000:A1:00.0", "Unknown Error"), exit=255)
GPU_ERROR_R610 = Fault(stdout=_HANDLE.format("1: 0000:34:00.0", "Unknown Error"), exit=255)
GPU_LOST = Fault(
    stdout=_HANDLE.format(" 0000:A1:00.0", "GPU is lost.  Reboot the system to recover this GPU"), exit=15
)
LGI_PERMISSIONS = Fault(
    on="mig -lgi$", stdout="Failed to display GPU instances: Insufficient Permissions\n", exit=4
)
LCI_PERMISSIONS = Fault(
    on="mig -lci", stdout="Failed to display compute instances: Insufficient Permissions\n", exit=4
)
LGIP_UNKNOWN = Fault(
    on="mig -lgip$", stdout="Failed to display GPU instance profiles: Unknown Error\n", exit=255
)
MODE_PENDING = Fault(on="-mig", stdout=_PENDING, exit=0)
DESTROY_IN_USE = Fault(on="mig -dgi", stdout=_IN_USE, exit=19)
RESET_IN_USE = Fault(on="(-r|--gpu-reset)", stdout=_RESET, exit=1)
SHELL_NOT_FOUND = Fault(stdout="", stderr="bash: nvidia-smi: command not found\n", exit=127)
EXIT_6 = Fault(exit=6)  # the normal text, and yet not 0
GARBAGE = Fault(stdout="\x1b[2J\x00\ufffdGPU zero <unexpected>\n| 0 MIG\n\t}{", exit=0)


def hang(seconds: float = 600, on: str = "") -> Fault:
    """A GPU that does not answer."""
    return Fault(on=on, sleep=seconds)


def truncated(text: str, length: int, on: str = "") -> Fault:
    """An answer cut in the middle, as by a broken stream."""
    return Fault(on=on, stdout=text[:length])
