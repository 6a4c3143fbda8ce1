"""``python -m fiprof.workloads run --case rmsnorm``: the runner, with or without a profiler around it.

Also started by path, ``python …/fiprof/workloads/__main__.py run …``, by an interpreter that has torch and
flashinfer but not fiprof; needs nothing but the standard library until a case is set up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

if not __package__:
    import importlib.util

    _package = Path(__file__).resolve().parents[1]
    _spec = importlib.util.spec_from_file_location(
        "fiprof", _package / "__init__.py", submodule_search_locations=[str(_package)]
    )
    assert _spec is not None and _spec.loader is not None
    sys.modules["fiprof"] = importlib.util.module_from_spec(_spec)
    # Without this, rope.py and its neighbours would be importable as top-level modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _package / "workloads"]
    _spec.loader.exec_module(sys.modules["fiprof"])

from fiprof.errors import FiprofError
from fiprof.workloads.case import parse_case
from fiprof.workloads.environment import describe
from fiprof.workloads.runner import Record, RunnerRequest, run_cases


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed, 2 wrong use. Results go to --out or stdout, one JSON line each."""
    options = _parser().parse_args(arguments)
    try:
        if options.action == "env":
            print(json.dumps(describe()))
        else:
            _run(options)
    except FiprofError as error:
        print(f"fiprof: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _run(options: argparse.Namespace) -> None:
    request = RunnerRequest(
        cases=tuple(parse_case(text) for text in options.case),
        iterations=options.measure_iterations,
        warmup=options.warmup,
        seed=options.seed,
        check=options.check,
        timing=options.timing,
        rounds=options.rounds,
        budget_ms=options.budget_ms,
        keep_memory=options.keep_memory,
        keep_going=options.keep_going,
    )
    with contextlib.ExitStack() as files:
        out = files.enter_context(open(options.out, "w", encoding="utf-8")) if options.out else sys.stdout

        def emit(record: Record) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()

        run_cases(request, emit, lambda step: print(f"fiprof: {step}", file=sys.stderr, flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fiprof.workloads",
        epilog="example: python -m fiprof.workloads run --case 'decode[batch=32,kv_len=2048]'",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="run cases in this process")
    run.add_argument("--case", action="append", required=True, help="name or name[key=value,…]; may be repeated")
    run.add_argument("--measure-iterations", type=int, default=20, help="launches of each case (default 20)")
    run.add_argument("--warmup", type=int, default=3, help="launches before them (default 3)")
    run.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
    run.add_argument(
        "--rounds", type=int, default=1, help="turns of each case, those of the others between (default 1)"
    )
    run.add_argument("--budget-ms", type=float, help="GPU time of a turn's launches, which may make them fewer")
    run.add_argument("--keep-going", action="store_true", help="cases that fail are no failure while one works")
    run.add_argument("--no-check", dest="check", action="store_false", help="do not compare with the reference")
    run.add_argument("--no-timing", dest="timing", action="store_false", help="a profiler does the timing")
    run.add_argument(
        "--give-memory-back", dest="keep_memory", action="store_false", help="between cases, as ncu's replay likes it"
    )
    run.add_argument("--out", help="file for the results (default: standard output)")
    actions.add_parser("env", help="print what this interpreter and its GPU are, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
