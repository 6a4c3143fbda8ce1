#!/bin/sh
# Collects the kernels of tests/single_purpose.py on this machine's GPU, all in one run folder (about two minutes).
# Run it from the repository's root; what follows is passed on to fiprof collect, e.g. --python PATH or --dry-run.
set -eu
workloads=""
for name in matmul device_copy l2_copy l2_read pointer_chase one_block uneven_blocks tiny_launches bank_conflicts fma_chain; do
    workloads="$workloads --workload tests/single_purpose.py:$name"
done
# shellcheck disable=SC2086 # the words of the list are separate arguments
exec fiprof collect $workloads "$@"
