"""The documentation site: ``make docs`` builds it into docs/_build."""

from pathlib import Path

from fiprof import __version__

project = "fiprof"
author = "fiprof's authors"
release = version = __version__
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # output of a command is no shell session throughout
exclude_patterns = ["_build", "reports"]
html_theme = "furo"
html_title = f"fiprof {release}"
html_extra_path = [path for path in ("reports",) if (Path(__file__).parent / path).is_dir()]
html_copy_source = False
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
