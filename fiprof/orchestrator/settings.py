"""Defaults, and the environment variables that change them. Imports nothing: every command's help needs it."""

ARCHIVE_FOLDER = "artifacts"
ARCHIVE_VARIABLE = "FIPROF_ARTIFACTS"
PYTHON_VARIABLE = "FIPROF_PYTHON"
"""The interpreter that has torch and flashinfer."""
TOOLS = ("nsys", "ncu")
STUDY_FILE = "study.json"
"""The manifest of a study, in its folder."""
