"""Secrets, which no file of fiprof's holds: what is one by its name, its place or its form, and texts without them.

A profiled program keeps its environment and command line; what is masked is what was written down of them. The words
that name a secret are those of Sentry's scrubber and detect-secrets, the forms of tokens those of gitleaks.
"""

import functools
import json
import mmap
import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fiprof import files

MASK = "***"
NAMED = re.compile(
    # No name begins with another letter. Looked at first: 0.4 of the time.
    r"(?=[acdjkpst])(?:(?P<header>authorization|cookie)"
    r"|(?P<strong>pass(?:word|wd|phrase)|pwd|secret|(?:api|access|auth|private|secret|account|signing)[_-]?key)"
    r"|(?P<weak>token|credential"
    r"|(?:(?<![a-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:key|auth|pass|pat|jwt|dsn|salt|signature|sig)))"
    r"s?(?:[_-]?(?:\d+|base|main|prod|dev|test|staging|old|new))?"
    r"(?P<between>(?:\\?[\"'])?[ \t]?(?:=(?!=)|:(?![:/]))[ \t]?|[ \0])",
    re.IGNORECASE,
)
"""The end of a secret's name, and what stands before its value. weak: also the name of a size, a switch or a path."""
NAME = re.compile(r"[\w.-]*\Z")
VALUE = re.compile(
    r"(?P<open>\\?[\"'])?(?P<value>(?(open)(?:[^\"'\0\\\n]|\\[^\"'])*|(?:[^\s\0\"',;&|)\]}>\\]|\\(?![\"'nrtu0]))*))"
)
WORD = re.compile(r"(?P<value>[^\0]*)")  # a word of a command line to its end, blanks and all
HEADER = re.compile(
    r"(?:\\?[\"'])?(?:(?:basic|bearer|digest|token|negotiate|ntlm|api-?key|oauth|aws4-hmac-sha256) +)?"
    r"(?P<value>(?:[^\"'\r\n\0\\]|(?<==)\"[^\"\n\0]*\")*)",
    re.IGNORECASE,
)
HARMLESS = re.compile(
    r"[-+]?\d{1,8}(?:[.,]\d*)?(?:e[-+]?\d+)?[a-z%µ/]{0,4}|true|false|none|null|auto|yes|no|on|off|inf|nan|default"
    r"|(?:~|\.{0,2})/[\w./-]*|[<\[(].*|#\w+=.*|and|or|to|is|was|has|for|with|in|if|as|of|not|the|a",
    re.IGNORECASE | re.DOTALL,
)
"""What is no secret where a weak name stands before it."""
REFERENCE = re.compile(r"\W{0,2}|\$\{?\w+\}?")  # what is none after any name: nothing, or the name of a variable
FORMS = {
    "URL": r"(://)[^\s/\0\"'<>]{0,300}:[^\s/\0\"'<>]{1,300}(?=@)|(https?://)[^\s/\0\"'<>@]{1,300}(?=@)",
    "Bearer": r"(\b[Bb]earer )[\w.~+/-]{8,}=*",
    "-u": r"((?<![^\s\0])(?:-u|--user|--proxy-user)[ \0=]?[a-zA-Z][\w.@-]{0,99}:)[^\s\0\"']+",
    "-p": r"(\b(?:mysql|mariadb)[\w-]*[ \0](?:[^\n;|&]{0,300}?[ \0])?-p|\bsshpass[ \0]-p[ \0]?)[^\s\0]+"
    r"|((?<![^\s\0])-p)(?=[^\s\0]{0,99}[A-Za-z])(?=[^\s\0]{0,99}\d)[^\s\0=/]{6,}(?![^\s\0])",
    "token": r"(https://hooks\.slack\.com/\w+/)[\w/]+|(PRIVATE KEY-----)[^-]+|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    r"|\b(?:(?:hf_|npm_|AKIA|ASIA)[A-Za-z0-9]{12,}|(?:gh[opsur]_|github_pat_|gsk_|dckr_pat_)[\w-]{12,}"
    r"|(?:gl[a-z]{1,6}-|xox[a-z]-|AIza|nvapi-|pypi-|ya29\.|SG\.)[\w.-]{16,}|[sr]k[-_](?=[\w-]{0,99}\d)[\w-]{12,})",
}
"""What is a secret by its form: all but the groups."""
LONG = re.compile(r"(?<![\w/+.…$-])(?!_Z)[\w+-]{20,200}={0,2}(?![\w/…$-]|\.\w|::)")
"""What may be a random token: no part of a path, and no mangled name."""
SUSPECT = re.compile(
    r"auth|cookie|pass|pwd|secret|key|token|credential|pat|jwt|dsn|salt|sig|://|bearer|-u|-p|user|eyJ|[\w.~+/-]{14}",
    re.IGNORECASE,
)
"""Found in every text that has a secret: NAMED, FORMS and LONG need one of these. Most names of ranges have none."""
LONGEST_KEPT = 1 << 12  # characters of a text from which it is looked through anew each time
MOST_BEGINS = 0.6
"""Of a random token's capitals that a small letter follows: 0.42 are expected; 0.8 in the name of a kernel."""
LINK_NAME = re.compile(r"(?:PROXY|URL|URI)$", re.IGNORECASE)  # variables whose value may have a password in it
PUBLIC_NAMES = frozenset({"PWD", "OLDPWD", "NO_PROXY", "no_proxy"})
SHORTEST_SECRET = 6
"""Characters of a value that is looked for in any text; shorter ones, such as ``true`` and ``8080``, occur anywhere."""
MIXED = re.compile(r"(?![A-Z]+-[0-9a-f]{8}-)(?=.*[A-Za-z])(?=.*[0-9])[^\s/,]{16,}")
"""The value of a variable that is a token, whatever its name, and no GPU's UUID."""
ENVIRONMENT_MARKS = (b"PATH=/", b"HOME=/")  # found wherever an environment was written down

Found = list[tuple[str, str]]  # name and value of each thing that was masked


def secrets() -> tuple[str, ...]:
    """The values of this process's environment and command line that are masked wherever they stand."""
    return given(tuple(os.environ.items()), tuple(sys.argv[1:]))


@functools.lru_cache(8)
def given(environment: Sequence[tuple[str, str]], argv: Sequence[str]) -> tuple[str, ...]:
    """The secrets of an environment and a command line, longest first, as they stand in text, JSON and URLs."""
    matches: Found = []
    mask_words([f"{name}={value}" for name, value in environment], (), matches)
    matches += [(name, value) for name, value in environment if LINK_NAME.search(name) and name not in PUBLIC_NAMES]
    matches += [(name, value) for name, value in environment if MIXED.fullmatch(value)]
    typed: Found = []
    mask_words(argv, (), typed)
    # A word of small letters may be anything's name.
    matches += [(name, value) for name, value in typed if re.search("[^a-z_-]", value)]
    lines = {line for _, value in matches for line in (value, *value.splitlines())}
    quoted = {urllib.parse.quote(line, safe="", errors="surrogateescape") for line in lines}
    forms = lines | quoted | {json.dumps(line)[1:-1] for line in lines}
    return tuple(sorted((form for form in forms if len(form) >= SHORTEST_SECRET), key=len, reverse=True))


def mask(text: str, values: Sequence[str] | None = None, matches: Found | None = None) -> str:
    """A text without secrets. values: ``secrets()``. matches: takes what was masked."""
    values = secrets() if values is None else values
    text, hidden = (_kept if len(text) < LONGEST_KEPT else _hidden)(text, tuple(values))
    if matches is not None:
        matches += hidden
    return text


def _hidden(text: str, values: tuple[str, ...]) -> tuple[str, Found]:
    """A text without secrets, and what was masked."""
    matches: Found = []
    for value in values:
        text = text.replace(value, MASK)
    if not SUSPECT.search(text):
        return text, matches
    pieces, at = [], 0
    for named in NAMED.finditer(text):
        if named.start() >= at and (hidden := _named(text, named, matches)):
            pieces += [text[at : hidden.start("value")], MASK]
            at = hidden.end("value")
    text = "".join([*pieces, text[at:]])
    for form, pattern in FORMS.items():

        def hide(match: re.Match[str], form: str = form) -> str:
            kept = match[match.lastindex] if match.lastindex else ""
            matches.append((form, match[0][len(kept) :]))
            return kept + MASK

        text = re.sub(pattern, hide, text)
    return LONG.sub(lambda match: MASK if _random(match[0], matches) else match[0], text), matches


_kept = functools.lru_cache(1 << 14)(_hidden)  # runs of a machine have most texts of their manifests in common


def masking() -> Callable[[str], str]:
    """``mask`` for the texts of databases and tables, many of which stand there twice, or in another one too."""
    return _masking(secrets())


@functools.lru_cache(2)
def _masking(values: Sequence[str]) -> Callable[[str], str]:
    return functools.lru_cache(1 << 16)(functools.partial(mask, values=values))


def mask_words(words: Sequence[str], values: Sequence[str] | None = None, matches: Found | None = None) -> list[str]:
    """A command line without secrets: the word after an option is its value."""
    whole = "".join("\0" + word.replace("\0", " ") for word in words)
    return mask(whole, values, matches).split("\0")[1:]


def mask_bytes(text: bytes) -> bytes:
    """What a program printed or wrote, without secrets."""
    return mask(text.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def mask_file(folder: Path, name: str) -> None:
    """A file in a folder that somebody else wrote, without secrets. Raises FiprofError, OSError."""
    before = files.read_bytes(folder, name)
    if (after := mask_bytes(before)) != before:
        with files.replacing(folder, name) as file:
            file.write(after)


def masked(content: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A document without secrets, and what was masked in it: ``argv: HF_TOKEN``."""
    values, names = secrets(), set[str]()

    def clear(value: Any, where: str) -> Any:
        matches: Found = []
        if isinstance(value, str):
            value = mask(value, values, matches)
        elif isinstance(value, dict):
            cleared = {}
            for key, each in value.items():
                name = mask(key, values)
                if isinstance(each, str) and key != "key":
                    # As a command line would set it.
                    cleared[name] = mask_words([f"{key}={each}"], values, matches)[0].removeprefix(f"{name}=")
                else:
                    cleared[name] = clear(each, key)
            value = cleared
        elif isinstance(value, list | tuple):
            words = all(isinstance(each, str) for each in value)
            value = mask_words(value, values, matches) if words else [clear(each, where) for each in value]
        names.update(f"{where}: {name}" for name, _ in matches)
        return value

    return {key: clear(value, key) for key, value in content.items()}, names


def holds_environment(path: Path) -> bool:
    """Whether a tool's own file has an environment, or a secret of this process's, in it."""
    marks = (*ENVIRONMENT_MARKS, *map(os.fsencode, secrets()))
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(value) >= 0 for value in marks)


def _named(text: str, named: re.Match[str], matches: Found) -> re.Match[str] | None:
    """The value after a name; None where it is no secret, or masked already."""
    before = NAME.search(text, max(named.start() - 64, 0), named.start())
    assert before is not None
    name, above = text[before.start() : named.start("between")], text[before.start() - 1 : before.start()]
    between = named["between"]
    apart = between in (" ", "\0")
    option = name.startswith("-") and (above == "\0" if between == "\0" else above in "\0 \n\t\"'`([")
    if name in PUBLIC_NAMES or (apart and not option):
        return None
    pattern = HEADER if named["header"] and ":" in between else VALUE
    value = (WORD if above == "\0" and (between == "\0" or "=" in between) else pattern).match(text, named.end())
    assert value is not None
    text_value = value["value"]
    public = REFERENCE.fullmatch(text_value) or (apart and text_value.startswith("-"))
    if named["weak"] and not public:
        # "key: batch" is a sentence.
        sentence = (
            ":" in between and name == named["weak"] and between[0] in ": " and not re.search("[0-9]", text_value)
        )
        public = HARMLESS.fullmatch(text_value) or sentence
    if text_value.startswith(MASK) or not public:
        matches.append((name.lstrip("-."), text_value))
    return None if text_value.startswith(MASK) or public else value


def _random(word: str, matches: Found) -> bool:
    """Whether a long word is a token: nobody chose its letters."""
    kinds = ("[A-Z]", "[a-z]", "[0-9]", "[-_+]", "[A-Z][a-z]")
    capitals, small, digits, seams, begins = (len(re.findall(kind, word)) for kind in kinds)
    random = min(capitals, small, digits) > 1 and len(word) > 12 * seams and begins < MOST_BEGINS * capitals
    if random:
        matches.append(("token", word))
    return random
