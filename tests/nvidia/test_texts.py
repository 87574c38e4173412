"""nvidia-smi's texts, from R450 to R610: read as they are, and never half-read in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.facts.nodes import Output
from gpuctl.nvidia.detail import parse_detail
from gpuctl.nvidia.instances import parse_compute_instances, parse_gpu_instances
from gpuctl.nvidia.kubelet import parse_devices
from gpuctl.nvidia.listing import parse_listing
from gpuctl.nvidia.model import Answers, joined, with_processes
from gpuctl.nvidia.offers import parse_offers, parse_placements
from gpuctl.nvidia.output import Trouble, worst
from gpuctl.nvidia.query import parse_gpus, parse_pci, parse_processes
from gpuctl.nvidia.table import parse_account, parse_table
from tests.nvidia import texts

Parser = Callable[[Output], Any]

WHOLE: dict[str, tuple[Parser, str]] = {
    "-L": (parse_listing, texts.LISTED),
    "-L of R450": (parse_listing, texts.LISTED_R450),
    "-lgi": (parse_gpu_instances, texts.LGI),
    "-lgi of R450": (parse_gpu_instances, texts.LGI_R450),
    "-lci": (parse_compute_instances, texts.LCI),
    "-lci of R450": (parse_compute_instances, texts.LCI_R450),
    "-lgip": (parse_offers, texts.LGIP),
    "-lgipp": (parse_placements, texts.LGIPP),
    "--query-gpu": (parse_gpus, texts.QUERY),
    "-q -x": (parse_detail, texts.XML),
    "table of R610": (parse_table, texts.TABLE),
}

# Where a text of these ends, only its last line tells: they have no frame, or several.
BY_LINES = ("-L", "-L of R450", "-lgipp", "--query-gpu", "table of R610")


@pytest.mark.parametrize("name", WHOLE)
def test_whole_texts_are_read_without_a_word(name: str) -> None:
    parse, text = WHOLE[name]
    assert parse(Output(text)).said == ()


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\x00" + text.replace("G", "\x00G"),
        lambda text: "\x1b[1m" + text.replace("|", "\x1b[32m|\x1b[0m"),
        lambda text: "Warning: persistence mode is off\n" + text,
        lambda text: 'time="2026-11-30T10:00:00Z" level=warning msg="x"\n' + text,
    ],
    ids=["Windows line ends", "NUL bytes", "ANSI colours", "a warning before it", "a log line before it"],
)
def test_what_a_stream_adds_takes_nothing(name: str, damage: Callable[[str], str]) -> None:
    parse, text = WHOLE[name]
    assert parse(Output(damage(text))) == parse(Output(text))


@pytest.mark.parametrize("name", [name for name in WHOLE if name not in BY_LINES])
def test_a_text_that_breaks_off_is_said_to(name: str) -> None:
    parse, text = WHOLE[name]
    for end in range(len(text) // 3, len(text.rstrip()) - 3, 7):
        assert parse(Output(text[:end])).said, text[:end][-80:]


@pytest.mark.parametrize("name", BY_LINES)
def test_a_line_that_breaks_off_is_said_to(name: str) -> None:
    parse, text = WHOLE[name]
    cut = text.rstrip()[:-9]
    assert parse(Output(cut)).said


@pytest.mark.parametrize("name", WHOLE)
def test_two_texts_written_through_each_other_are_noticed(name: str) -> None:
    parse, text = WHOLE[name]
    half = len(text) // 2
    assert parse(Output(text[:half] + text + text[half:])).said


@pytest.mark.parametrize("name", WHOLE)
def test_twenty_megabytes_are_refused_in_time(name: str) -> None:
    parse, text = WHOLE[name]
    answer = parse(Output(text + "x" * 20_000_000))
    assert worst(answer.said) is not None


@pytest.mark.parametrize("name", WHOLE)
@given(text=st.text(max_size=400), code=st.integers(0, 255))
def test_no_text_crashes_a_parser(name: str, text: str, code: int) -> None:
    parse, whole = WHOLE[name]
    for told in (text, whole[: len(text)] + text, text + whole):
        answer = parse(Output(told, "", code))
        assert isinstance(answer.said, tuple)


@given(text=st.text(max_size=300))
def test_no_text_crashes_the_other_parsers(text: str) -> None:
    parse_pci(Output(text))
    parse_processes(Output(text))
    try:
        parse_devices(Output(text))
    except ValueError:
        return


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "DRIVER_DOWN"),
        ("No devices were found", "NO_DEVICES"),
        ("No devices found.", "NO_DEVICES"),
        ("Unable to determine the device handle for GPU 0000:A1:00.0: GPU is lost.  Reboot …", "GPU_LOST"),
        ("Unable to determine the device handle for GPU0000:A1:00.0: Unknown Error", "GPU_ERROR"),
        ("Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error", "GPU_ERROR"),
        ("Failed to initialize NVML: Driver/library version mismatch", "VERSION_MISMATCH"),
        ("Failed to initialize NVML: Unknown Error", "CGROUP_LOST"),
        ("Failed to initialize NVML: Driver Not Loaded", "DRIVER_DOWN"),
        ("Failed to display compute instances: Insufficient Permissions", "PERMISSION"),
        ("bash: nvidia-smi: command not found", "NOT_FOUND"),
        ("sh: 1: nvidia-smi: not found", "NOT_FOUND"),
        ("exec /usr/bin/nvidia-smi: exec format error", "NOT_FOUND"),
        ("Failed to destroy GPU instances: In use by another client", "IN_USE"),
        ("Warning: MIG mode is in pending disable state for GPU 00000000:C1:00.0:In use", "MODE_PENDING"),
        ("Failed to display GPU instance profiles: Unknown Error", "UNREADABLE"),
        ("Segmentation fault", "UNREADABLE"),
        ("", "UNREADABLE"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", [0, 6, 9, 255])
def test_errors_are_told_by_their_text_whatever_the_exit_code(text: str, trouble: str, code: int) -> None:
    said = worst(parse_listing(Output(text, "", code)).said)
    assert said is not None
    assert said.trouble is Trouble[trouble]


def test_an_error_beside_a_list_does_not_hide_the_list() -> None:
    lost = "Unable to determine the device handle for GPU 0000:A1:00.0: GPU is lost.  Reboot the system\n"
    listing = parse_listing(Output(lost + texts.LISTED, "", 15))
    assert len(listing.gpus) == 2
    assert [said.trouble for said in listing.said] == [Trouble.GPU_LOST]


def test_a_hung_command_is_told_by_its_exit_code() -> None:
    assert [said.trouble for said in parse_listing(Output("", "", 124)).said] == [Trouble.HUNG]


@pytest.mark.parametrize("text", ["No MIG-enabled devices found.", "No GPU instances found: Not Found"])
def test_no_instances_are_a_regular_answer_with_any_exit_code(text: str) -> None:
    assert parse_gpu_instances(Output(text, "", 6)).said == ()
    assert parse_gpu_instances(Output(text, "", 6)).found == ()


def test_columns_other_than_the_asked_ones_are_not_taken_for_them() -> None:
    other = f"0, {texts.GPU_A}, NVIDIA H100 80GB HBM3, 100, 4627, 81559, 66, 355.57\n"
    assert parse_gpus(Output(other)).found == ()
    assert parse_gpus(Output(other)).said


def test_device_attributes_come_from_the_gpu_instance() -> None:
    hardware = joined(
        Answers(
            listing=parse_listing(Output(texts.LISTED)),
            instances=parse_gpu_instances(Output(texts.LGI)),
            computes=parse_compute_instances(Output(texts.LCI)),
        )
    )
    told = [(str(device.profile), device.instance, device.exact) for device in hardware.devices]
    assert told == [("1c.3g.40gb", 1, True), ("1g.10gb+me", 11, True), ("1g.10gb", 13, True)]


def test_old_uuids_tell_their_instances() -> None:
    hardware = joined(Answers(listing=parse_listing(Output(texts.LISTED_R450))))
    assert [device.instance for device in hardware.devices] == [2, 9]
    assert not hardware.exact


def test_without_instances_the_attributes_are_not_known() -> None:
    hardware = joined(Answers(listing=parse_listing(Output(texts.LISTED))))
    assert not hardware.exact


def test_answers_that_contradict_each_other_are_an_obstacle() -> None:
    short = "\n".join(texts.LISTED.splitlines()[:-2]) + "\n"
    hardware = joined(Answers(listing=parse_listing(Output(short)), rows=parse_gpus(Output(texts.QUERY))))
    assert hardware.obstacle is not None


@pytest.mark.parametrize(
    ("listed", "instances", "contradicts"),
    [
        (texts.LISTED, texts.LGI, False),
        (texts.LISTED, "No GPU instances found: Not Found\n", True),
        (texts.LISTED, "No MIG-enabled devices found.\n", True),
        (f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {texts.GPU_A})\n", "No MIG-enabled devices found.\n", False),
        (texts.LISTED, "Unable to determine the device handle for GPU0: 0000:1B:00.0: GPU is lost.\n", False),
    ],
)
def test_devices_without_instances_to_lie_in_are_an_obstacle(
    listed: str, instances: str, contradicts: bool
) -> None:
    found = Answers(listing=parse_listing(Output(listed)), instances=parse_gpu_instances(Output(instances)))
    assert (joined(found).obstacle is not None) is contradicts


def test_memory_and_modes_come_from_the_xml() -> None:
    one = "\n".join(texts.LISTED.splitlines()[:2])
    hardware = joined(Answers(listing=parse_listing(Output(one)), detail=parse_detail(Output(texts.XML))))
    (gpu,) = hardware.gpus
    memory = gpu.memory_of(gpu.devices[0])
    assert (gpu.mode, gpu.device_id, gpu.bus_id) == ("Enabled", "0x233010de", "0000:1b:00.0")
    assert memory is not None
    assert (memory.used, memory.total) == (298, 40448)


def test_xml_that_defines_entities_is_refused() -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>'
    assert parse_detail(Output(bomb)).gpus == ()
    assert parse_detail(Output(bomb)).said


def test_graphics_controllers_alone_are_gpus() -> None:
    text = (
        "0000:1b:00.0 0302: 10de:2330 (rev a1)\n0000:07:00.0 0680: 10de:22a3\n0000:1b:00.1 0403: 10de:22ba\n"
    )
    assert parse_pci(Output(text)) == ("0000:1b:00.0",)


def test_the_kubelet_s_record_tells_holders_without_replica_numbers() -> None:
    text = (
        '{"Data":{"PodDeviceEntries":[{"PodUID":"u1","ContainerName":"c","ResourceName":"nvidia.com/gpu",'
        '"DeviceIDs":{"0":["GPU-a::3"]},"AllocResp":"eA=="}],"RegisteredDevices":{"nvidia.com/gpu":["GPU-a::0"]}},'
        '"Checksum":1}'
    )
    devices = parse_devices(Output(text))
    assert [held.pod for held in devices.holders("GPU-a")] == ["u1"]
    assert devices.registered == {"nvidia.com/gpu": frozenset({"GPU-a"})}


def test_without_compute_instances_whole_devices_fill_their_gpu_instances() -> None:
    whole = texts.LISTED.replace("1c.3g.40gb", "3g.40gb   ")
    hardware = joined(
        Answers(listing=parse_listing(Output(whole)), instances=parse_gpu_instances(Output(texts.LGI)))
    )
    told = [(str(device.profile), device.instance, device.exact) for device in hardware.devices]
    assert told == [("3g.40gb", 1, True), ("1g.10gb+me", 11, True), ("1g.10gb", 13, True)]


WHOLE_DEVICES = texts.LISTED.replace("1c.3g.40gb", "3g.40gb   ")


@pytest.mark.parametrize(
    ("listed", "instances"),
    [
        (texts.LISTED, texts.LGI),  # a part of an instance may have others beside it
        (WHOLE_DEVICES, texts.LGI.replace("MIG 1g.10gb   ", "MIG 2g.20gb   ")),
        (WHOLE_DEVICES, texts.LGI.replace("MIG 1g.10gb ", "MIG 1g.10gb*")),
    ],
)
def test_devices_that_do_not_fit_the_instances_are_not_told_by_them(listed: str, instances: str) -> None:
    hardware = joined(
        Answers(listing=parse_listing(Output(listed)), instances=parse_gpu_instances(Output(instances)))
    )
    assert {device.instance for device in hardware.devices} == {None}


def test_the_tables_stand_in_where_there_is_no_xml() -> None:
    detail = parse_account(Output(texts.TABLE))
    (gpu,) = detail.gpus
    assert detail.said == ()
    assert (gpu.index, gpu.bus_id, gpu.mode, gpu.pending) == (0, "0000:61:00.0", "Enabled", "Enabled")
    assert [(each.instance, each.used, each.total) for each in gpu.devices] == [(6, 1786, 24192)]
    assert [(each.pid, each.instance) for each in gpu.processes] == [(4711, 6)]
    assert parse_account(Output(texts.XML)).gpus == parse_detail(Output(texts.XML)).gpus


def test_a_mode_that_waits_has_a_star_in_the_table() -> None:
    waiting = texts.TABLE.replace("Enabled |", "Enabled*|")
    (gpu,) = parse_account(Output(waiting)).gpus
    assert (gpu.mode, gpu.pending) == ("Enabled", "Disabled")


@pytest.mark.parametrize(
    ("told", "odd"),
    [
        ("|  0    6   0   0  |            1786MiB /", "|  0    6   0   x  |            1786MiB /"),
        ("|    0    6    0             4711      C ", "|    0    6    0             47x1      C "),
        ("|   0  NVIDIA RTX PRO 6000 Blac...    On  |", "|   0  NVIDIA RTX PRO 6000 Blac...    0?  |"),
    ],
)  # fmt: skip
def test_no_row_of_a_table_is_passed_over(told: str, odd: str) -> None:
    assert told in texts.TABLE
    assert parse_account(Output(texts.TABLE.replace(told, odd))).said


def test_devices_and_processes_of_no_gpu_of_the_table_are_not_passed_over() -> None:
    """Its beginning may be missing."""
    rows = [each for each in texts.TABLE.splitlines() if not each.startswith("|   0  NVIDIA RTX")]
    (said,) = parse_account(Output("\n".join(rows) + "\n")).said
    assert said.line == "rows of GPUs that the table does not list: 0"


def test_processes_come_from_the_list_of_them_where_the_xml_tells_none() -> None:
    one = parse_listing(Output("\n".join(texts.LISTED.splitlines()[:2])))
    told = joined(Answers(listing=one, detail=parse_detail(Output(texts.XML))))
    apps = parse_processes(Output(f"{texts.GPU_A}, 4711, python3, 256\n{texts.GPU_A}, 4712, python3, 8\n"))
    (gpu,) = with_processes(told, apps).gpus
    assert [(each.pid, each.instance) for each in gpu.processes or ()] == [(4711, 1), (4712, None)]


def test_a_list_of_processes_that_can_t_be_read_adds_none_and_is_said() -> None:
    one = joined(Answers(listing=parse_listing(Output("\n".join(texts.LISTED.splitlines()[:2])))))
    hardware = with_processes(one, parse_processes(Output("Segmentation fault")))
    assert hardware.gpus == one.gpus
    assert [command for command, _ in hardware.said] == ["--query-compute-apps"]


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        (f"{texts.GPU_A}, 4711, python3, 256\n", 256),
        (f"gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n{texts.GPU_A}, 4711, python3, 256\n", 256),
        (f"{texts.GPU_A}, 4711, python3 -c a, b, 256 MiB\n", 256),
        (f"{texts.GPU_A}, 4711, python3, [N/A]\n", None),
    ],
)
def test_processes_are_read_with_a_header_and_without(text: str, memory: int | None) -> None:
    answer = parse_processes(Output(text))
    assert [(each.pid, each.memory) for each in answer.found] == [(4711, memory)]
    assert answer.said == ()


@pytest.mark.parametrize(
    "row", [f"{texts.GPU_A}, [N/A], python3, 256", "0, 4711, python3, 256", f"{texts.GPU_A}, 47 11, x, 1"]
)
def test_no_process_is_passed_over_in_silence(row: str) -> None:
    assert parse_processes(Output(f"{row}\n")).said
