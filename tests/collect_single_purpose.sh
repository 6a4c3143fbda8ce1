#!/bin/sh
# Collects the kernels of tests/single_purpose.py on this machine's GPU in one run folder, those of
# tests/trouble_kernels.py, of tests/exam_kernels.py, of tests/serving_kernels.py, of tests/unseen_kernels.py, of
# tests/fresh_kernels.py and of tests/last_kernels.py in six others (one or two minutes each); FILES="tests/last_kernels.py"
# takes these files alone.
# Run it from the repository's root; what follows is passed on to fiprof collect, e.g. --python PATH or --dry-run.
set -eu
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
all="tests/single_purpose.py tests/trouble_kernels.py tests/exam_kernels.py tests/serving_kernels.py"
all="$all tests/unseen_kernels.py tests/fresh_kernels.py tests/last_kernels.py"
for file in ${FILES:-$all}; do
    workloads=""
    exam=$(basename "$file" _kernels.py)
    names=$(sed -nE "1d;s/^$exam,([a-z0-9_]+),.*/\1/p" tests/kernels/exams.csv)
    [ -n "$names" ] || names=$(sed -nE 's/^    name, summary = "([a-z0-9_]+)".*/\1/p' "$file")
    for name in $names; do
        workloads="$workloads --workload $file:$name"
    done
    # shellcheck disable=SC2086 # the words of the list are separate arguments
    fiprof collect $workloads "$@"
done
