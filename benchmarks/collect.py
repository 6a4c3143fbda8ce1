"""On a GPU: five kernels profiled by hand, one after the other, beside one ``fiprof collect``.

By hand is what people do today: for each kernel the plain run, one nsys process, one ``ncu --set full`` process, and
the raw and details exports. Both sides in one run, the JIT cache warm for both. Prints the seconds and the ratios.
Bars: 0.24 of by hand with --set full, 0.15 with --set quick; fiprof's own share of the wall time (everything but the
tools' processes) at most 3 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from fiprof.model.layout import Page
from fiprof.model.settings import Settings
from fiprof.orchestrator import ncu
from fiprof.orchestrator.commands import runner_argv
from fiprof.orchestrator.tools import find_tool

KERNELS = ("prefill", "decode", "rmsnorm", "fused_add_rmsnorm", "rope")
PAGES: tuple[Page, ...] = ("raw", "details")
BARS = {"full": 0.24, "quick": 0.15}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch and flashinfer")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        warm_up(options.python)
        figures = {"by_hand_s": by_hand(options.python, folder)}
        print(f"by hand                {figures['by_hand_s']:6.1f} s")
        for ncu_set, bar in BARS.items():
            wall_s, own_s = with_fiprof(options.python, folder, ncu_set)
            ratio = wall_s / figures["by_hand_s"]
            figures |= {f"{ncu_set}_s": wall_s, f"{ncu_set}_ratio": ratio, f"{ncu_set}_own_s": own_s}
            print(
                f"fiprof collect {ncu_set:7} {wall_s:6.1f} s  {ratio:.3f} of by hand (bar {bar})  "
                f"own share {own_s:.2f} s, {own_s / wall_s:.1%} (bar 3 %)",
                flush=True,
            )
        if options.out:
            options.out.write_text(json.dumps(figures, indent=1) + "\n")


def warm_up(python: str) -> None:
    """Fill the JIT cache, and the page cache with torch."""
    cases = [word for kernel in KERNELS for word in ("--case", kernel)]
    subprocess.run([*runner_argv(python), "run", *cases, "--measure-iterations=1"], check=True, capture_output=True)


def by_hand(python: str, folder: Path) -> float:
    """Seconds for the five kernels, each with processes of its own."""
    nsys, tool = str(find_tool("nsys").path), find_tool("ncu").path
    begin = time.perf_counter()
    for kernel in KERNELS:
        workload = [*runner_argv(python), "run", "--case", kernel, f"--out={folder / kernel}.jsonl"]
        traced = [*workload, "--no-check", "--no-timing"]
        report = folder / f"{kernel}.ncu-rep"
        profile = ncu.profile_argv(
            tool,
            report,
            [*traced, "--measure-iterations=1", "--warmup=1"],
            Settings(),
        )
        run(workload)
        run([nsys, "profile", f"--output={folder / kernel}", "--trace=cuda,nvtx", "--force-overwrite=true", *traced])
        run(profile)
        for page in PAGES:
            with open(folder / f"{kernel}.{page}.csv", "wb") as file:
                subprocess.run(ncu.export_argv(tool, report, page), check=True, stdout=file)
    return time.perf_counter() - begin


def with_fiprof(python: str, folder: Path, ncu_set: str) -> tuple[float, float]:
    """Wall seconds of ``fiprof collect`` over the kernels, and those in which none of the tools' processes ran."""
    archive = folder / ncu_set
    words = ["--kernel", ",".join(KERNELS), "--set", ncu_set, "--python", python]
    argv = [sys.executable, "-m", "fiprof", "collect", *words]
    begin = time.perf_counter()
    run([*argv, "--artifacts", str(archive)])
    wall_s = time.perf_counter() - begin
    manifest = json.loads(next(archive.glob("2*/run.json")).read_text())
    if manifest["status"] != "complete":
        raise SystemExit(f"the run is {manifest['status']}: {manifest['reason']}")
    return wall_s, wall_s - covered_s(manifest["actions"])


def covered_s(actions: list[dict[str, object]]) -> float:
    """Seconds in which at least one of the actions' processes ran; they overlap."""
    spans = sorted(
        (start, start + float(str(action["duration_s"])))
        for action in actions
        for start in (datetime.fromisoformat(str(action["started"])).timestamp(),)
    )
    total, end = 0.0, float("-inf")
    for first, last in spans:
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def run(argv: list[str] | tuple[str, ...]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}\nfailed with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
