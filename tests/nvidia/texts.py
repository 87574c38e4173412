"""nvidia-smi's outputs in the layouts that have been seen, with invented UUIDs."""

from __future__ import annotations

GPU_A = "GPU-1f0e7a52-93c4-4b9e-8d15-6a2f0c3b7d11"
GPU_B = "GPU-7b24d9c6-0a8e-47f3-9c62-e5d1a4f80b22"
MIG_1 = "MIG-0c9d2e41-5b7a-5f36-8e14-2a6b9c7d3f01"
MIG_2 = "MIG-4e8f1a27-6c3b-5d90-a1f5-7b2c8d9e4a02"
MIG_3 = "MIG-9a5b3c68-1d2e-5e47-b8c9-0f1e2d3c4b03"

LISTED = f"""\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {GPU_A})
  MIG 1c.3g.40gb  Device  0: (UUID: {MIG_1})
  MIG 1g.10gb     Device  1: (UUID: {MIG_2})
  MIG 1g.10gb     Device  2: (UUID: {MIG_3})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {GPU_B})
"""
LISTED_R450 = f"""\
GPU 0: A100-SXM4-40GB (UUID: {GPU_A})
  MIG 4g.20gb Device 0: (UUID: MIG-{GPU_A}/2/0)
  MIG 1g.5gb Device 1: (UUID: MIG-{GPU_A}/9/0)
"""
LGI = """\
+---------------------------------------------------------+
| GPU instances:                                          |
| GPU   Name               Profile  Instance   Placement  |
|                            ID       ID       Start:Size |
|=========================================================|
|   0  MIG 1g.10gb           19       13          6:1     |
+---------------------------------------------------------+
|   0  MIG 3g.40gb            9        1          0:4     |
+---------------------------------------------------------+
|   0  MIG 1g.10gb+me        20       11          4:1     |
+---------------------------------------------------------+
"""
LGI_R450 = """\
+----------------------------------------------------+
| GPU instances:                                     |
| GPU   Name          Profile  Instance   Placement  |
|                       ID       ID       Start:Size |
|====================================================|
|   0  MIG 3g.20gb       9        1          4:4     |
+----------------------------------------------------+
"""
LCI = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0     13       MIG 1g.10gb          0         0          0:1     |
+--------------------------------------------------------------------+
|   0      1       MIG 1c.3g.40gb       0         0          2:1     |
+--------------------------------------------------------------------+
|   0     11       MIG 1g.10gb          0         0          0:1     |
+--------------------------------------------------------------------+
"""
LCI_R450 = """\
+-------------------------------------------------------+
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|         ID                                            |
|=======================================================|
|   0      1       MIG 1c.3g.20gb       0         0     |
+-------------------------------------------------------+
"""
LGIP = """\
+-------------------------------------------------------------------------------+
| GPU instance profiles:                                                        |
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|===============================================================================|
|   0  MIG 1g.10gb         19     1/7        9.75       No     16     1     0   |
|                                                               1     1     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 7g.80gb          0     0/1        79.25      No     132    7     0   |
|                                                               8     7     1   |
+-------------------------------------------------------------------------------+
"""
LGIPP = """\
GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID  0 Placement : {0}:8
"""
QUERY = f"""\
index, uuid, name, mig.mode.current, mig.mode.pending, memory.used [MiB], memory.total [MiB], pci.bus_id
0, {GPU_A}, NVIDIA H100 80GB HBM3, Enabled, Disabled, 12657, 81559, 00000000:1B:00.0
1, {GPU_B}, NVIDIA H100 80GB HBM3, [N/A], [N/A], [Unknown Error], 81559, 00000000:2D:00.0
"""
XML = f"""\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<driver_version>580.105.08</driver_version>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:1B:00.0">
\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>
\t\t<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
\t\t<mig_devices>
\t\t\t<mig_device>
\t\t\t\t<index>0</index>
\t\t\t\t<gpu_instance_id>1</gpu_instance_id>
\t\t\t\t<compute_instance_id>0</compute_instance_id>
\t\t\t\t<fb_memory_usage><total>40448 MiB</total><used>298 MiB</used></fb_memory_usage>
\t\t\t</mig_device>
\t\t</mig_devices>
\t\t<uuid>{GPU_A}</uuid>
\t\t<pci><pci_device_id>233010DE</pci_device_id></pci>
\t\t<fb_memory_usage><total>81559 MiB</total><used>3703 MiB</used></fb_memory_usage>
\t\t<processes>
\t\t\t<process_info>
\t\t\t\t<gpu_instance_id>1</gpu_instance_id>
\t\t\t\t<pid>4711</pid>
\t\t\t\t<process_name>/usr/bin/python3</process_name>
\t\t\t\t<used_memory>256 MiB</used_memory>
\t\t\t</process_info>
\t\t</processes>
\t</gpu>
</nvidia_smi_log>
"""
TABLE = """\
Mon Nov 30 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA RTX PRO 6000 Blac...    On  |   00000000:61:00.0 Off |                   On |
| N/A   34C    P0            108W /  600W |                  N/A   |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  0    6   0   0  |            1786MiB / 24192MiB    | 46      0 |  1   1    1    0    1 |
|                  |               0MiB /  8317MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0    6    0             4711      C   python3                                1714MiB |
+-----------------------------------------------------------------------------------------+
"""
