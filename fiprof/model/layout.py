"""Where the files of a run folder lie, relative to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Page = Literal["raw", "details", "source"]

BASELINE = "baseline.jsonl"
NSYS_REPORT = "nsys/trace.nsys-rep"
NSYS_SQLITE = "nsys/trace.sqlite"
NCU_REPORT = "ncu/profile.ncu-rep"
NCU_PAGES: Mapping[Page, str] = {"raw": "ncu/raw.csv", "details": "ncu/details.csv", "source": "ncu/source.csv"}
NSYS_CASES = "logs/nsys.jsonl"
"""The runner's records under nsys."""
NCU_CASES = "logs/ncu.jsonl"
TABLES = "tables"
SUMMARY = f"{TABLES}/summary.json"
"""The run's key quantities, for the catalogue."""
ANNOTATIONS = "annotations.json"
"""Tags and notes."""
RECORDED = "recorded"
"""Folder of runs that a repository keeps as they are."""
RAW_FOLDERS = ("nsys", "ncu")
"""What the tools wrote."""
COMPARISON = "result.json"
"""Of a run folder in which two sides were measured beside each other."""
MEASUREMENTS = "measurements"
"""Folder of what its processes measured: ``A1.jsonl``, ``B1.jsonl``, …"""
STUDY_FILE = "study.json"
"""The manifest of a study, in its folder."""


def numbered(name: str, number: int) -> str:
    """The n-th file or step of its kind in a run, from 0: ``nsys/trace.sqlite``, ``nsys/trace-1.sqlite``, …"""
    stem, dot, suffix = name.rpartition(".") if "." in name else (name, "", "")
    return f"{stem}-{number}{dot}{suffix}" if number else name
