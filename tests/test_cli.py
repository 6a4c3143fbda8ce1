"""The command line as a whole: help, examples, exit statuses, what it imports; what a newcomer types first, in the words of the README
and docs/: nothing of it trips; and any word, in any environment: what was asked for, or one line and its exit status."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fiprof.cli.main import OWN, cli
from tests.conftest import REPOSITORY, Fiprof, fake_programs, forks, python_path, ran, run_fiprof
from tests.fakes.recorded import recorded_bytes
from tests.nsys_exports import FIVE_KERNELS
from tests.recorded_runs import ON_H100, RUNS, STUDY, copied, invoke, parsed, replayed
from tests.reports_fixture import RAW
from tests.test_comparison import CASES
from tests.test_scale import STUDY as SMALL_STUDY
from tests.test_workloads import USERS_OWN

COMMANDS = cli.list_commands(click.Context(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_in_each_commands_help_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = cli.get_command(click.Context(cli), name)
    example = str(command and command.epilog)
    assert example.startswith(f"Example: fiprof {name}")
    if name in ("capture", "env", "gate"):
        return
    if name == "story":  # is told of programs
        copied(parsed("llama"), tmp_path / "artifacts")
    elif name in ("pack", "parse"):
        copied("prefill-decode-rope", tmp_path / "artifacts")
    elif name != "import":
        copied(replayed("decode" if name == "compare" else "all"), tmp_path / "artifacts")
    (tmp_path / "my_kernels.py").write_text(USERS_OWN)
    shutil.copy(FIVE_KERNELS, tmp_path / "trace.sqlite")
    shutil.copy(RAW, tmp_path / "raw.csv")
    monkeypatch.chdir(tmp_path)
    status, printed = invoke(*shlex.split(example.removeprefix("Example: fiprof ")))
    # The recorded run is packed already.
    assert status == 0 and (printed or name in ("pack", "import"))
    assert name != "kernels" or "--width" in printed


@pytest.mark.fault("the ncu that is named does not exist", "`env` names it and how to install it, exit status 1")
def test_env_names_the_remedies(faked: Fiprof) -> None:
    done = faked("env", FIPROF_NCU="/no/such/ncu", status=1)
    assert re.search(r"^ncu +missing +/no/such/ncu --version does not run", done.stdout, re.MULTILINE)
    assert "ncu: install Nsight Compute" in done.stdout
    assert re.search(r"^nsys +ok +2025\.3\.1", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("stalls latest", "fiprof: artifacts holds no run\n  fiprof collect --kernel prefill makes one\n"),
        ("collect", "fiprof: which kernel?\n"),
        ("collect --kernel prefil", "fiprof: there is no workload 'prefil'\n"),
        ("collect --kernel rope --batch 3", "fiprof: rope has no parameter --batch\n"),
        ("collect --kernel rope --tool perf", "Invalid value for '--tool': perf is not a comma list of nsys, ncu\n"),
        ("collect --kernel rope --replay latest", "fiprof: --replay takes its cases from the run\n"),
        ("collect --workload x.py:mine", "fiprof: x.py: there is no such file\n"),
        ("profile -- no-such-program", "no-such-program was not found, or cannot be run"),
        ("profile --capture cuda -- true", "--capture cuda\n  cudaProfilerApi, or nvtx:NAME"),
        ("profile --keep-running -- true", "--keep-running traces a window"),
        ("runs --artifacts ARCHIVE --where bach=1", "no run has a parameter bach"),
        ("runs --artifacts ARCHIVE --where dtype>fp16", "compares no numbers"),
        ("runs --since yesterday", "is not a time"),
        ("runs --metric speed", "no quantity speed"),
        ("runs --catalog mysql://x", "cannot be opened"),
        ("top latest --over .", "Error: give either RUN or --over"),
        ("top --over . --by range", "Error: --over takes --kernel, --by host, run, rank or gpu"),
        ("top --over nowhere", "fiprof: nowhere holds no run"),
        ("jit --read nowhere", "Error: Invalid value for '--read': File 'nowhere' does not exist.\n"),
        ("export latest", "Error: Missing option '--to'. Choose from:\n  parquet,\n  csv,"),
        ("import programs/* --on dask:nowhere", "fiprof: --on dask:nowhere cannot be reached: missing port number"),
        ("import nothing/**/*.sqlite", "fiprof: no file fits nothing/**/*.sqlite"),
        ("import nope://x/*", "fiprof: nope://x/* cannot be reached: "),
        ("import programs/* --on moon", "fiprof: --on moon names nothing that imports"),
    ],
)
def test_wrong_use(faked: Fiprof, arguments: str, words: str) -> None:
    done = faked(*arguments.replace("ARCHIVE", str(parsed("decode").path.parent)).split())
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False) and words in done.stderr


@pytest.mark.fault("the reader of a pipe goes away", "a quiet end")
def test_a_reader_that_goes_away_is_no_error() -> None:
    run = shlex.quote(str(parsed("all").path))
    shell = f"{shlex.quote(sys.executable)} -m fiprof stalls {run} --format json | head -n 1"
    done = ran("bash", "-o", "pipefail", "-c", shell, env={"PYTHONPATH": python_path(), "PATH": "/usr/bin:/bin"})
    assert "BrokenPipe" not in done.stderr and done.stdout == "{\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fiprof verd", ["verdict"]),
        ("fiprof show 20261121-1", [path.name for path in RUNS.values() if path.name.startswith("20261121-1")]),
        ("fiprof show --kern", ["--kernel"]),
    ],
)
def test_the_shell_completes_commands_options_and_runs(words: str, offered: list[str]) -> None:
    code = "import sys; sys.argv = ['fiprof']; from fiprof.cli.main import main; main()"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_FIPROF_COMPLETE": "bash_complete"}
    env = {"PYTHONPATH": python_path(), "FIPROF_ARTIFACTS": str(RUNS["all"].parent), **asked}
    done = ran(sys.executable, "-c", code, env=env)
    assert sorted(line.removeprefix("plain,") for line in done.stdout.splitlines()) == sorted(offered)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("collect", "--help"), set()),
        (("study", "flashinfer", "--quick", "--dry-run"), {"pyarrow", "numpy"}),  # who has one GPU needs no scheduler
        *(((each, "RUN"), {"pyarrow", "numpy", "rich"}) for each in ("hotspots", "verdict")),
    ],
)
def test_heavy_packages_are_imported_where_they_are_used(words: tuple[str, ...], allowed: set[str]) -> None:
    heavy = ["pandas", "pyarrow", "numpy", "torch", "flashinfer", "rich", "jinja2", "submitit", "distributed", "dask"]
    code = (
        "import sys; sys.argv = ['fiprof', *sys.argv[1:]]\nfrom fiprof.cli.main import main\n"
        f"try: main()\nfinally: sys.stderr.write('imported:' + ','.join(m for m in {heavy} if m in sys.modules))"
    )
    words = tuple(word.replace("RUN", str(parsed("all").path)) for word in words)
    done = ran(sys.executable, "-c", code, *words, env={"PYTHONPATH": python_path(), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and {*done.stderr.rpartition("imported:")[2].split(",")} <= {"", *allowed}, done.stderr


(OWN_KERNEL,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/own-kernel.md").read_text(), re.DOTALL)
KERNEL = OWN_KERNEL.replace("import torch\n", "")
"""Without torch, which takes seconds and is not needed before it is launched."""
COST = KERNEL.index("    def cost")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, light: Path) -> Path:
    """A recorded run, and after it a measured comparison, a failed collect, and a run whose manifest is damaged."""
    folder = tmp_path_factory.mktemp("trips")
    shutil.copytree(RUNS["all"], folder / "artifacts" / RUNS["all"].name)
    env = fake_programs(folder, light)
    assert run_fiprof("compare", "--measure", "here", "env:X=1", *CASES, cwd=folder, env=env).returncode == 0
    assert run_fiprof("collect", "--kernel", "rope", cwd=folder, env={**env, "FAKE_NCU": "no-report"}).returncode == 1
    (folder / "artifacts/20261124-000000-damaged").mkdir()
    (folder / "artifacts/20261124-000000-damaged/run.json").write_text("{")
    return folder / "artifacts"


@pytest.mark.fault("a gate, a failed or a damaged run after the last complete one", "`latest` is what a command reads")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("verdict latest", "note: latest is 20261121-120959-all; 20261124-000000-damaged is no complete run"),
        ("top latest", "20261121-120959-all: NVIDIA H200"),
        ("report latest --out out", "out/report.md"),
        ("tag latest mine", "-compare-decode-rmsnorm: mine"),
        ("compare latest", "decode"),
        ("compare latest:batch=32 latest:batch=32", "A: 20261121-120959-all, batch=32"),
    ],
)
def test_latest_is_the_newest_run_that_the_command_reads(words: str, name: str, archive: Path, fiprof: Fiprof) -> None:
    done = fiprof(*words.split(), "--artifacts", str(archive))
    assert (done.returncode, name in done.stdout + done.stderr) == (0, True), done.stderr


LACKING = """import lacking.nn as nn
from lacking import Tensor

@nn.no_grad()
def f(x: Tensor | None) -> None: ...

class Layer(nn.Module): ...
"""


@pytest.mark.fault("a workload's file imports what is lacking here, or has no cost", "it is collected all the same")
def test_kernels_of_ones_own(faked: Fiprof, tmp_path: Path) -> None:
    texts = {"whole": KERNEL, "costless": KERNEL[:COST], "lacks": LACKING + KERNEL}
    texts["imports"] = "import beside\n" + KERNEL
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text.replace('"softmax"', f'"{name}"'))
    (tmp_path / "beside.py").write_text("import json.lacking")
    words = [word for name in texts for word in ("--workload", f"{name}.py")]
    done = faked("collect", *words, "--rows", "1", "--tool", "ncu", status=0)
    assert "complete; next: fiprof verdict artifacts/" in done.stderr
    cases = json.loads((tmp_path / done.stdout.strip() / "run.json").read_text())["cases"]
    assert [(case["id"], case["workload"], case["flops"]) for case in cases] == [
        (f"{name}[rows=1]", f"{name}.py:{name}", 0 if name == "costless" else 4 * 4096) for name in texts
    ]
    assert faked("roofline", "latest").returncode == faked("report", "latest").returncode == 0


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("import lacking\n" + KERNEL, "lacking cannot be imported by "),
        ("x = 1 / 0\n" + KERNEL, "my_kernels.py cannot be imported: ZeroDivisionError"),
        (KERNEL + KERNEL[KERNEL.index("class Softmax") :].replace("Softmax", "B").replace('"softmax"', '"b"'),
         "my_kernels.py defines 2 workloads\n  it defines softmax, b; my_kernels.py:NAME is one"),
        ("x = 1\n", "my_kernels.py defines 0 workloads"),
    ],
)  # fmt: skip
def test_what_a_file_lacks_is_said_by_whoever_runs_it(text: str, first: str, tmp_path: Path) -> None:
    (tmp_path / "my_kernels.py").write_text(text)
    (tmp_path / "torch.py").touch()
    words = (sys.executable, "-m", "fiprof.workloads", "run", "--case", "my_kernels.py")
    done = ran(*words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"})
    assert done.returncode and done.stderr.startswith(f"fiprof: error: {first}"), done.stderr


def test_compare_suggests_what_runs_as_printed(fiprof: Fiprof) -> None:
    """Not for runs on two kinds of GPU."""
    decode, troubles = RUNS["decode"], (RUNS["troubles"], ON_H100["troubles"])
    sides = [f"{decode}:tensor_cores={value}" for value in ("false", "true")]
    printed = [fiprof("compare", *map(str, pair)).stdout for pair in (sides, troubles)]
    (line,), none = (re.findall(r"fiprof (compare --measure .*)", text) for text in printed)
    assert none == []
    fiprof(*shlex.split(line), "--dry-run", status=0)


def test_make_collect_installs_fiprof_alone_and_ends_with_the_verdict(tmp_path: Path) -> None:
    words = ["make", "--no-print-directory", "--dry-run", "collect", f"VENV={tmp_path}/venv", "HAS_GPU=0"]
    printed = ran(*words, cwd=REPOSITORY).stdout
    assert "--editable '.'" in printed and "[dev]" not in printed
    assert printed.splitlines()[-1] == f"{tmp_path}/venv/bin/fiprof verdict latest"


def test_no_text_installs_a_package_called_fiprof() -> None:
    """It is in no index: whoever registers the name would be installed."""
    files = [*REPOSITORY.glob("fiprof/**/*.*"), *REPOSITORY.glob("docs/**/*.*"), REPOSITORY / "README.md"]
    kinds = (".py", ".md", ".j2", ".toml", ".csv", ".ipynb", ".yml")
    texts = {path: path.read_text() for path in files if path.suffix in kinds}
    assert [path for path, text in texts.items() if re.search(r"pip\"? install (-\S+ )*['\"]?fiprof", text)] == []


def tree(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[click.Parameter]]]:
    """Every command with the words that name it, and its parameters."""
    ctx = click.Context(command, **cli.context_settings)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from tree(inner, (*words, name))
    else:
        yield words, command.get_params(ctx)


EVERY = [each for name in (*OWN, "jit") for each in tree(cli.get_command(click.Context(cli), name) or cli, (name,))]

ODD = [
    "", " ", "-", "--", "---", "=", ",", ":", "[", "(", "*", "%", "~", "~nobody/x", ".", "..", "\udcff", "a\udcff/b", "\x1b[31m", "\r\n", "\u202e",
    "x" * 5000, "/" * 5000, "9" * 5000, "-1", "1e999", "nan", "inf", "1_0", "²", "٣", "0x10", "1-0", "5-99999999", "true", "null",
    "latest", "run", "artifacts/run", "run:batch=1", "latest:\udcff", "[batch=1]", "decode", "decode[batch=1]", "decode[", "x.py:y", "x.py:", ":", "batch=", "batch>=x", "=1", "git:HEAD", "git::", "env:A=B", "env:A", "params:batch=1", "case:decode", "case:\udcff[batch=1]", "program:", "program:'", "program:true", "python:nothing", "here",
    "sqlite:///x", "sqlite://", "x://", "postgresql+psycopg://nobody@127.0.0.1:1/x", "nvtx:", "nvtx:\udcff", "0d", "99999999999d", "2026-13-41", "30%", "-5%", "/dev/null", "/dev/full", "/proc/self/mem",
    "file", "fifo", "link", "bytes\udcfe", "name,name", "cpu.sqlite", "--help", "--format", "-h", "@x", "\ufeff", "\U0010ffff", "e\u0301",
]  # fmt: skip


def harmless(word: str) -> bool:
    """Whether a word names no path outside the folder."""
    return word in ODD or not ("/" in word or ".." in word)


WORDS = st.one_of(
    st.sampled_from(ODD),
    st.binary(max_size=12).filter(lambda data: b"\0" not in data).map(os.fsdecode).filter(harmless),
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=12).filter(harmless),
    st.tuples(st.sampled_from(ODD), st.sampled_from([",", "=", ":", ".."]), st.sampled_from(ODD))
    .map("".join)
    .filter(harmless),
)

RUNS_THERE = ["latest", "run", "run", "artifacts/run", "artifacts�/r�n", "r�n", "run:1", "latest:batch=1", "lat"]
FITTING = {
    **dict.fromkeys(("run", "runs", "a", "b"), RUNS_THERE),
    **dict.fromkeys(("out", "folder", "bundle", "junit", "comment"), ("new", "n\udcffw", "artifacts", "made", "file", "n\udcffw/deeper", "link", "fifo")),
    **dict.fromkeys(("base", "now"), ("here", "git:HEAD", "program:tr\udcffe", "env:A=\udcff", "params:batch=2", "python:\udcff", "case:decode[batch=1]")),
    **dict.fromkeys(("kernel", "kernels"), ("decode", "prefill,decode", "flash", "rope")),
    **dict.fromkeys(("older_than", "since_", "duration_s", "delay_s"), ("0d", "30d", "1")),
    **dict.fromkeys(("where", "split", "metric", "metrics"), ("batch=1", "dtype", "kernel", "case_plain_us", "duration_us", "git", "user")),
    **dict.fromkeys(("against", "name", "keep_tags"), ("main", "m\udcff", "study", "study.toml", "flashinfer", "s\udcffy.toml", "damaged")),
    **dict.fromkeys(("names", "text"), ("release", "a\udcffb", "a,b", "x" * 200, "\x1b[31m", "\u202e", "é", "e\u0301", "\ufeff", "-x", "../x")),
    **dict.fromkeys(("commit", "only"), ("HEAD", "0" * 40, "decode", "-x", "\udcff")),
    "catalog": ("sqlite:///new.sqlite", "sqlite:///cpu.sqlite", "sqlite:///trace.sqlite", "sqlite:///file", "sqlite:///fifo"),
    "artifacts": ("artifacts", "artifacts\udcff", "new"),
    "files": ("raw\udcff.csv", "raw.csv", "trace.sqlite", "trace\udcff.sqlite", "file"),
}  # fmt: skip
"""Parameter -> words that it may take."""


def word(draw: Callable[[st.SearchStrategy[Any]], Any], parameter: click.Parameter) -> str:
    """A word for a parameter: mostly one that it takes."""
    kind, fitting = parameter.type, FITTING.get(str(parameter.name))
    if isinstance(kind, click.Choice):
        fitting = tuple(map(str, kind.choices))
    elif isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        fitting = ("1", "2", "10", "50", str(10**6), str(2**31), str(10**30))
    return str(draw(st.sampled_from([*fitting])) if fitting and draw(st.integers(0, 5)) else draw(WORDS))


@st.composite
def command_lines(draw: Any) -> list[str]:
    words, parameters = draw(st.sampled_from(EVERY))
    line = list(words)
    options = [each for each in parameters if isinstance(each, click.Option)]
    chosen = [each for each in options if each.required]
    if options:
        chosen += draw(st.lists(st.sampled_from(options), max_size=3))
    for option in chosen:
        name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        if option.is_flag:
            line.append(name)
        elif draw(st.booleans()) and name.startswith("--"):
            line.append(f"{name}={word(draw, option)}")
        else:
            line += [name, word(draw, option)]
    for each in parameters:
        if isinstance(each, click.Argument):
            many = each.nargs if each.nargs > 0 else draw(st.integers(1, 3))
            line += [word(draw, each) for _ in range(many - draw(st.sampled_from([0, 0, 0, 0, 1])))]
    if draw(st.integers(0, 20)) == 7:
        line.insert(draw(st.integers(0, len(line))), draw(WORDS))
    return line


ODD_VARIABLES = {
    "LC_ALL": ["C", "x", "\udcff"], "HOME": ["", "/proc/1/x", "/dev/null", "\udcff"], "TERM": ["dumb", "", "x\udcff"],
    "COLUMNS": ["0", "1", "-5", "x", "9" * 30, "\udcff"], "NO_COLOR": ["", "1"], "TZ": ["garbage", ":/dev/null", "\udcff"],
    "PATH": ["", ".", "\udcff"], "XDG_CACHE_HOME": ["relative", "\udcff", "/dev/null"], "TMPDIR": ["/dev/null", "\udcff"],
    "FIPROF_ARTIFACTS": ["", "artifacts\udcff", "file", "nothing"], "FIPROF_CATALOG": ["", "x", "sqlite:///\udcff", "sqlite:///new"],
    "FIPROF_NSYS": ["", "file", "\udcff", "/dev/null"], "FIPROF_NCU": ["", "file", "\udcff"], "FIPROF_PYTHON": ["", "file", "\udcff"],
    "GIT_DIR": ["nothing", "\udcff"], "GITHUB_ACTIONS": ["true"], "GITHUB_STEP_SUMMARY": ["\udcff", "/dev/full"],
    "CUDA_VISIBLE_DEVICES": ["", "-1", "x\udcff"], "A_TOKEN": ["secret\udcffsecret"],
}  # fmt: skip
PLAIN = {"PATH": "/nowhere", "HOME": "home", "COLUMNS": "100"}
ENVIRONMENTS = st.lists(
    st.sampled_from([(name, text) for name, texts in ODD_VARIABLES.items() for text in texts]), max_size=2
).map(lambda odd: {**PLAIN, **dict(odd)})
CLOSED: list[tuple[int, ...]] = [(), (), (), (), (0,), (1,), (2,), (0, 1, 2)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of one run, to be copied; and files of several kinds."""
    folder = tmp_path_factory.mktemp("words")
    shutil.copytree(replayed("decode").path, folder / "artifacts/run")
    for name in ("run", "r\udcfen"):
        shutil.copytree(parsed("vectors").path, folder / "artifacts\udcff" / name)
    for name in ("ncu/raw.csv", "nsys/trace.sqlite"):
        data = recorded_bytes(folder / "artifacts/run" / name)
        (folder / Path(name).name).write_bytes(data)
        (folder / Path(name).name.replace(".", "\udcff.")).write_bytes(data)
    made = folder / "made"
    shutil.copytree(STUDY, made, ignore=shutil.ignore_patterns("2*", "reports"))
    (made / "site.json").write_text("{}")
    for name in ("study.toml", "s\udcffy.toml"):
        (folder / name).write_text(SMALL_STUDY)
    (folder / "artifacts/baselines").mkdir()
    kept = {"name": "main", "run": "run", "commit": None, "set_at": "2026-11-22T10:00:00+00:00", "set_by": "a@b"}
    (folder / "artifacts/baselines/main.json").write_text(json.dumps(kept))
    (folder / "artifacts/baselines/damaged.json").write_text("{")
    (folder / "file").write_text("text")
    (folder / os.fsdecode(b"bytes\xfe")).write_text("text")
    (folder / "link").symlink_to("nothing")
    os.mkfifo(folder / "fifo")
    return folder


@pytest.mark.fault("any word on any command line: not UTF-8, empty, huge, controls, an option", "done, or one line")
@pytest.mark.fault("no HOME, PATH or TMPDIR of use, odd locale, TERM, COLUMNS, TZ, FIPROF_*", "done, or one line")
@pytest.mark.fault("standard input, output or error closed by the shell", "the exit status is the same")
@pytest.mark.fault("archives, runs and files whose names are not UTF-8", "read and written like any other")
@settings(
    max_examples=int(os.environ.get("FIPROF_TEST_WORDS", "30")),
    derandomize="FIPROF_TEST_WORDS" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(line=command_lines(), env=ENVIRONMENTS, closed=st.sampled_from(CLOSED))
@example(line=["profile", "--", "\r\n"], env=PLAIN, closed=())
@example(line=["runs", "--limit", str(10**30), "--kernel", "rope"], env=PLAIN, closed=())
@example(line=["report", "latest"], env={**PLAIN, "A_TOKEN": "secret\udcffsecret"}, closed=())
def test_any_command_line(line: list[str], env: dict[str, str], closed: tuple[int, ...], place: Path) -> None:
    """FIPROF_TEST_WORDS: that many, others each time."""
    folder = place.with_name("now")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-r", str(place), str(folder)], check=True)
    ended = forks().run(line, folder, env, closed)
    assert ended.in_order, (ended.status, ended.stderr[-1500:])


@pytest.mark.fault("words, notes, files and folders that are not UTF-8", "recorded as `\\xff`; the note is shown so")
def test_what_is_not_utf_8_is_kept(place: Path, fakes: dict[str, str]) -> None:
    new = "new\udcff"
    env = {**os.environ, **fakes, "LC_ALL": "C", "HOME": "/nowhere", "A_TOKEN": "secretsecret"}
    options = ("--tool", "nsys", "--artifacts", new, "--quiet")
    program = ("profile", *options, "--", "sh", "-c", ": a\udcffb \udcfe secretsecret")
    for line in (
        program,
        ("note", "artifacts\udcff/r\udcfen", "a\udcffb"),
        ("report", "artifacts\udcff/r\udcfen", "--bundle", "b\udcff.zip"),
        ("import", "raw\udcff.csv", "--artifacts", new),
    ):
        ended = forks().run(line, place, env)
        assert (ended.status, "Traceback" in ended.stderr) == (0, False), ended
    run, imported = sorted((place / new).glob("[!.]*/run.json"), key=lambda path: "raw" in str(path))
    assert json.loads(run.read_text())["environment"]["program"]["command"][-1] == r": a\xffb \xfe ***"
    assert json.loads(imported.read_text())["imported"][0]["source"].endswith(r"/raw\xff.csv")
    published = forks().run(("publish", "site", "--artifacts", "artifacts\udcff"), place, env)
    assert published.status == 1 and "r\\xfen is left out: " in published.stderr
    shown = forks().run(("runs", "--artifacts", "artifacts\udcff", "--format", "json"), place, env)
    assert r"a\xffb" in [note["text"] for row in json.loads(shown.stdout)["rows"] for note in row["notes"]]
