"""A report's numbers computed again from a run's raw files, by other means than fiprof's: csv, sqlite3, json, lzma.

Nothing of fiprof is imported: what stands here is what the formulas of ``fiprof.model.finding.Source`` say.
"""

import csv
import fnmatch
import io
import itertools
import json
import lzma
import re
import sqlite3
import tempfile
from collections import defaultdict
from functools import cached_property
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

PHASES = ("setup", "warmup", "measure")
METRIC = re.compile(r"[a-z]\w*__[\w.]+|\bmemory_l[12]\w+")
PATTERN = re.compile(r"sum\(([\w.*]+\*[\w.]*)\)")
LEVELS = {
    "sms_active": "SMs Active", "sm_issue": "SM Issue", "tensor_active": "Tensor Active",
    "dram_read": "DRAM Read Bandwidth", "dram_write": "DRAM Write Bandwidth",
}  # fmt: skip


def spread(values: list[float]) -> float:
    """(p90 - p10) / median, percentiles between neighbours."""
    p10, *_, p90 = quantiles(values, n=10, method="inclusive")
    return (p90 - p10) / median(values)


FUNCTIONS: dict[str, Any] = {
    "median": median, "spread": spread, "mean": mean, "sum": sum, "min": min, "max": max, "count": len,
}  # fmt: skip


def calculate(formula: str, names: dict[str, Any]) -> float:
    """A formula over these names."""
    return float(eval(formula, {"__builtins__": {}}, {**FUNCTIONS, **names}))


class RawRun:
    """The raw files of a run, packed or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes:
        packed = self.folder / f"{name}.xz"
        return lzma.decompress(packed.read_bytes()) if packed.exists() else (self.folder / name).read_bytes()

    def value(self, source: Any) -> float:
        """What a source says, computed from the files."""
        if source.origin == "facts":
            parts = [self.value(part) for part in source.parts]
            return calculate(source.formula, {"parts": parts, **dict(zip("abcdefgh", parts, strict=False))})
        compute = {"ncu": self._ncu, "nsys": self._nsys, "plain": self._plain, "run.json": self._run}[source.origin]
        return compute(source)

    # ncu's raw page

    @cached_property
    def launches(self) -> dict[int, dict[str, str]]:
        lines = self.read("ncu/raw.csv").decode().splitlines(keepends=True)
        start = next(index for index, line in enumerate(lines) if line.startswith('"ID"'))
        header, _units, *rows = csv.reader(io.StringIO("".join(lines[start:])))
        return {int(row[0]): dict(zip(header, row, strict=False)) for row in rows}

    def _ncu(self, source: Any) -> float:
        cells = self.launches[source.launch]

        def number(name: str) -> float:
            return float(cells[name].replace(",", ""))

        formula = PATTERN.sub(lambda match: repr(sum(map(number, fnmatch.filter(cells, match[1])))), source.formula)
        return calculate(METRIC.sub(lambda match: repr(number(match[0])), formula), {})

    # nsys's SQLite file

    @cached_property
    def executions(self) -> list[dict[str, Any]]:
        """Every kernel, and every copy without a kernel's name, with the ranges of fiprof that its call lies in."""
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
            file.write(self.read("nsys/trace.sqlite"))
            file.flush()
            trace = sqlite3.connect(file.name)
            self.samples = self._read_samples(trace)
            said = "COALESCE(text, (SELECT value FROM StringIds WHERE id = textId))"
            named = f"SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND {said} = 'fiprof'"
            (domain,) = next(trace.execute(named))
            ranges: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
            mine = f"SELECT globalTid, start, end, {said} FROM NVTX_EVENTS WHERE eventType = 59 AND domainId = {domain}"
            for thread, *times_and_text in trace.execute(mine):
                ranges[thread].append(tuple(times_and_text))
            runtime = "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            calls = {(number, thread >> 24): (start, thread) for start, thread, number in trace.execute(runtime)}
            listed = "SELECT name FROM sqlite_master WHERE name LIKE 'CUPTI%_KIND_MEM%'"
            known = [name for (name,) in trace.execute(listed)]
            work = [
                "SELECT start, end, (SELECT value FROM StringIds WHERE id = shortName), "
                "gridX || 'x' || gridY || 'x' || gridZ, correlationId, globalPid, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL",
                *(f"SELECT start, end, NULL, '0x0x0', correlationId, globalPid, streamId FROM {table}"
                  for table in known if table.endswith(("MEMCPY", "MEMSET"))),
            ]  # fmt: skip
            found = []
            for start, end, kernel, grid, number, pid, stream in trace.execute(
                f"{' UNION ALL '.join(work)} ORDER BY 1"
            ):
                called, thread = calls[number, pid >> 24]
                inside = [text for first, last, text in ranges[thread] if first <= called <= last]
                ran = {"start": start, "end": end, "stream": stream, "kernel": kernel, "grid": grid}
                ran["phase"] = next((text for text in inside if text in PHASES), "")
                ran["case"] = next((text for text in inside if "[" in text), None)
                ran["iteration"] = next((text for text in inside if text.startswith("iter ")), None)
                found.append(ran)
            trace.close()
        return found

    @staticmethod
    def _read_samples(trace: sqlite3.Connection) -> dict[str, list[tuple[float, float]]]:
        if not trace.execute("SELECT 1 FROM sqlite_master WHERE name = 'TARGET_INFO_GPU_METRICS'").fetchone():
            return {}
        sql = """SELECT timestamp, value FROM GPU_METRICS WHERE metricId =
                 (SELECT metricId FROM TARGET_INFO_GPU_METRICS WHERE metricName LIKE ? || '%[Throughput %]')
                 ORDER BY timestamp"""
        return {key: trace.execute(sql, (start,)).fetchall() for key, start in LEVELS.items()}

    @cached_property
    def period(self) -> float:
        """Between two samples, ns."""
        return median(after[0] - before[0] for before, after in itertools.pairwise(next(iter(self.samples.values()))))

    def _nsys(self, source: Any) -> float:
        working = [
            each
            for each in self.executions
            if source.phase == "all" or (each["phase"] == source.phase and each["case"] == source.case)
            if source.kernel is None or each["kernel"] == source.kernel
            if source.grid is None or each["grid"] == source.grid
        ]
        wanted = [each for each in working if each["kernel"] is not None]
        first, last = min(each["start"] for each in wanted), max(each["end"] for each in wanted)
        busy: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in working:
            busy[each["iteration"]].append(each)
        iterations: dict[str, float] = defaultdict(float)
        for each in wanted:
            iterations[each["iteration"]] += each["end"] - each["start"]
        names: dict[str, Any] = {
            "duration_ns": [each["end"] - each["start"] for each in wanted],
            "beside_ns": [self._beside(each) for each in wanted if "beside_ns" in source.formula],
            "start_ns": [each["start"] for each in wanted],
            "end_ns": [each["end"] for each in wanted],
            "iteration_ns": list(iterations.values()),
            "busy_ns": sum(max(0, min(end, last) - max(start, first)) for start, end in self._busy(working)),
            "iteration_busy_ns": [sum(end - start for start, end in self._busy(each)) for each in busy.values()],
        }
        levels = {key: self._level(key, wanted) for key in LEVELS if key in source.formula}
        return calculate(source.formula, {**names, **levels})

    def _beside(self, mine: dict[str, Any]) -> int:
        """Time of a kernel in which one of another stream ran; no two of the others run at once in what is recorded."""
        others = (each for each in self.executions if each["kernel"] and each["stream"] != mine["stream"])
        return sum(max(0, min(mine["end"], each["end"]) - max(mine["start"], each["start"])) for each in others)

    @staticmethod
    def _busy(executions: list[dict[str, Any]]) -> list[tuple[int, int]]:
        merged: list[tuple[int, int]] = []
        for each in sorted(executions, key=lambda each: each["start"]):
            if merged and each["start"] <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], each["end"]))
            else:
                merged.append((each["start"], each["end"]))
        return merged

    def _level(self, key: str, executions: list[dict[str, Any]]) -> list[float]:
        """The samples of which the executions took four fifths or more."""
        busy, period = self._busy(executions), self.period
        near = [(at, value) for at, value in self.samples[key] if busy[0][0] - period <= at <= busy[-1][1]]
        values = []
        for at, value in near:
            overlap = sum(max(0.0, min(end, at + period) - max(start, at)) for start, end in busy)
            if overlap / period >= 0.8:
                values.append(value)
        return values

    # The runner's own records, and the manifest

    def _plain(self, source: Any) -> float:
        records = [json.loads(line) for line in self.read("baseline.jsonl").splitlines()]
        (record,) = [each for each in records if each["kind"] == "case" and each["case"] == source.case]
        gpu_us, length = record["gpu_us"], len(record["gpu_us"]) // record.get("rounds", 1)
        names = {
            "gpu_us": gpu_us,
            "round_us": [median(gpu_us[start : start + length]) for start in range(0, len(gpu_us), length)],
            "wall_us": record["wall_us"],
            "relative_error": record.get("reference", {}).get("relative_error"),
        }
        return calculate(source.formula, names)

    def _run(self, source: Any) -> float:
        manifest = json.loads(self.read("run.json"))
        case: dict[str, Any] = next((each for each in manifest["cases"] if each["id"] == source.case), {})
        names = {key: case.get(key) for key in ("flops", "bytes_read", "bytes_written")}
        return calculate(source.formula, {**names, "duration_s": manifest["duration_s"]})
