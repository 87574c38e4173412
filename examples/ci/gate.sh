#!/bin/sh
# A gate before a rollout, for any CI: fails on findings (1), and on what could not be judged (3).
#
#   gate.sh [ARGUMENTS OF gpuctl check]
#
# Without arguments it checks the cluster of the kubeconfig. Waivers stand in gpuctl.yaml, in the folder it is
# started in. Reports go to $GPUCTL_REPORTS, by default the folder gpuctl-reports.
set -eu

reports=${GPUCTL_REPORTS:-gpuctl-reports}
mkdir -p "$reports"

code=0
gpuctl check "$@" \
  -o "junit=$reports/gpuctl.xml" \
  -o "markdown=$reports/gpuctl.md" \
  -o "json=$reports/gpuctl.json" || code=$?

case $code in
  0) ;;
  1) echo "gate: there are findings that nobody waived; each code is explained by: gpuctl explain CODE" >&2 ;;
  3) echo "gate: something could not be judged; see what is missing with: gpuctl can-i" >&2 ;;
  *) echo "gate: gpuctl ended with exit code $code" >&2 ;;
esac
exit "$code"
