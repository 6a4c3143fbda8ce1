"""``python -m fiprof.workloads run --case rmsnorm``: the runner, with or without a profiler around it.

Also started by path, ``python …/fiprof/workloads/__main__.py run …``, by an interpreter that has torch and
flashinfer but not fiprof; needs nothing but the standard library until a case is set up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
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
from fiprof.workloads.runner import Record, RunnerRequest, follow, run_cases


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed, 2 wrong use. Results go to --out or stdout, one JSON line each."""
    options = _parser().parse_args(arguments)
    try:
        if options.action == "env":
            print(json.dumps(describe()))
        elif options.action == "rounds":
            with open(options.orders, encoding="utf-8") as orders, results(options.out) as emit:
                follow(_request(options), orders, emit, say, imports_from=options.imports_from)
        else:
            request = _request(options)
            with results(options.out) as emit:
                run_cases(request, emit, say)
    except FiprofError as error:
        print(f"fiprof: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _request(options: argparse.Namespace) -> RunnerRequest:
    """What the options ask for: each is called as the field that takes it."""
    cases, iterations = tuple(map(parse_case, options.case)), options.measure_iterations
    given = {**vars(options), "cases": cases, "iterations": iterations}
    return RunnerRequest(**{field.name: given[field.name] for field in fields(RunnerRequest) if field.name in given})


@contextlib.contextmanager
def results(path: str | None) -> Iterator[Callable[[Record], None]]:
    """What writes a record as a line of a file, or of stdout without one."""
    with open(path, "w", encoding="utf-8") if path else contextlib.nullcontext(sys.stdout) as out:

        def emit(record: Record) -> None:
            out.write(json.dumps(record) + "\n")
            out.flush()

        yield emit


def say(step: str) -> None:
    print(f"fiprof: {step}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fiprof.workloads",
        epilog="example: python -m fiprof.workloads run --case 'decode[batch=32,kv_len=2048]'",
    )
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="run cases in this process")
    rounds = actions.add_parser("rounds", help="keep cases warm, and measure them when told")
    for each in (run, rounds):
        each.add_argument("--case", action="append", required=True, help="name or name[key=value,…]; may be repeated")
        each.add_argument("--measure-iterations", type=int, default=20, help="launches of each case (default 20)")
        each.add_argument("--warmup", type=int, default=3, help="launches before them (default 3)")
        each.add_argument("--seed", type=int, default=0, help="of the random inputs (default 0)")
        each.add_argument("--out", help="file for the results (default: standard output)")
    rounds.add_argument("--budget-ms", type=float, default=20.0, help="GPU time of a case's launches in a round")
    rounds.add_argument("--imports-from", default="", help="folder that something has to be imported from")
    rounds.add_argument("--orders", required=True, help="FIFO with an order a line, see workloads/runner.py")
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
    actions.add_parser("env", help="print what this interpreter and its GPU are, as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
