"""Where files lie in the folder of a run, and of a study."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Page = Literal["raw", "details", "source"]

FILE_NAME = "run.json"  # the manifest
BASELINE = "baseline.jsonl"  # the runner's timings without a profiler
NSYS_REPORT = "nsys/trace.nsys-rep"
NSYS_SQLITE = "nsys/trace.sqlite"
TORCH_MEMORY = "nsys/torch_memory.jsonl"
"""What torch's caching allocator did in the processes of the trace, a line a GPU."""
NCU_REPORT = "ncu/profile.ncu-rep"
NCU_PAGES: Mapping[Page, str] = {"raw": "ncu/raw.csv", "details": "ncu/details.csv", "source": "ncu/source.csv"}
NSYS_CASES = "logs/nsys.jsonl"  # the runner's records under nsys
NCU_CASES = "logs/ncu.jsonl"
TABLES = "tables"
SUMMARY = f"{TABLES}/summary.json"  # the run's key quantities, for the catalogue
DIGEST = "digest.parquet"  # what a trace came to, for questions to many
ANNOTATIONS = "annotations.json"  # tags and notes
EXPORTED = ".export"  # in a folder with tables of a run for other programs, with the mark that zips and traces have too
RECORDED = "recorded"  # folder of runs that a repository keeps as they are
RAW_FOLDERS = ("nsys", "ncu")  # what the tools wrote
COMPARISON = "result.json"  # of a run folder in which two sides were measured beside each other
MEASUREMENTS = "measurements"  # folder of what its processes measured: ``A1.jsonl``, ``B1.jsonl``, …
STUDY_FILE = "study.json"  # the manifest of a study, in its folder


def recorded(folder: Path) -> bool:
    """Whether a repository keeps a run as it is: its manifest does not say what was made of it since."""
    return RECORDED in folder.resolve().parts


def numbered(name: str, number: int) -> str:
    """The n-th file or step of its kind in a run, from 0: ``nsys/trace.sqlite``, ``nsys/trace-1.sqlite``, …"""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    return f"{stem}-{number}{dot}{suffix}" if number else name
