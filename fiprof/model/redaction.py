"""Values of the environment that do not leave the machine: which they are, and texts without them.

A profiled program keeps its whole environment; what is masked is what was written down of it.
"""

import dataclasses
import functools
import mmap
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fiprof.model.manifest import Manifest

MASK = "***"
SECRET_NAME = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|KEY|CREDENTIALS?|AUTH|JWT|PAT|DSN|COOKIE|SALT|PROXY|URL|URI)"
    r"S?(_|\d|$)",
    re.IGNORECASE,
)
"""A part of a variable's name, between underscores, that ends in one of these: ``PGPASSWORD``, ``GH_PAT``."""
PUBLIC_NAMES = frozenset({"PWD", "OLDPWD", "NO_PROXY", "no_proxy"})
"""Variables that have such a name and hold no secret."""
SHORTEST_SECRET = 6
"""Characters; shorter values, such as ``true`` and ``8080``, occur in any text."""
SHORTEST_UNNAMED = 16
"""Of a value without blanks, slashes and commas that mixes letters and digits: a token, whatever its name."""
TOKENS = re.compile(
    r"(?<=://)[^\s/@]*:[^\s/@]+(?=@)"  # user and password in a URL
    r"|\b(?:hf_|gh[opsu]_|github_pat_|glpat-|sk-|xox[abp]-|AKIA)[\w-]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"  # JSON Web Token
    r"|(?<=[Bb]earer )[\w.~+/-]{8,}=*"
    r"|(?:(?<=token=)|(?<=secret=)|(?<=password=)|(?<=passwd=)|(?<=api-key=)|(?<=api_key=))[^\s&]{6,}",
)
"""What is a secret by its form."""
SECRET_OPTION = re.compile(r"--?[\w-]*(token|secret|password|passwd|api[-_]key)", re.IGNORECASE)
"""An option whose value, the next word, is one."""
ENVIRONMENT_MARKS = (b"PATH=/", b"HOME=/")
"""Found wherever an environment was written down."""


def secrets(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that are masked, longest first."""
    found = {value for name, value in environment.items() if _secret(name, value)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def mask(text: str, values: Sequence[str]) -> str:
    """A text without these values and without what has a secret's form."""
    for value in values:
        text = text.replace(value, MASK)
    return TOKENS.sub(MASK, text)


def mask_log(text: bytes) -> bytes:
    """What a program printed, without this process's secrets."""
    masked = mask(text.decode(errors="surrogateescape"), secrets(os.environ))
    return masked.encode(errors="surrogateescape")


def mask_words(argv: Sequence[str], values: Sequence[str]) -> list[str]:
    """A command line without secrets."""
    masked = [mask(word, values) for word in argv]
    for place, option in enumerate(argv[:-1]):
        if SECRET_OPTION.fullmatch(option) and not argv[place + 1].startswith("-"):
            masked[place + 1] = MASK
    return masked


def masked(manifest: Manifest) -> Manifest:
    """A manifest without secrets in what was started, set and said."""
    values = secrets(os.environ)
    text = functools.partial(mask, values=values)
    actions = [
        dataclasses.replace(
            action,
            argv=mask_words(action.argv, values),
            env={name: MASK if _secret(name, value) else text(value) for name, value in action.env.items()},
            message=text(action.message),
            remedy=text(action.remedy),
        )
        for action in manifest.actions
    ]
    return dataclasses.replace(
        manifest,
        actions=actions,
        settings=_deep(manifest.settings, text),
        environment=_deep(manifest.environment, text),
        reason=text(manifest.reason),
        warnings=[text(warning) for warning in manifest.warnings],
    )


def holds_environment(path: Path) -> bool:
    """Whether a tool's own file has an environment, or a secret of this process's, in it."""
    wanted = (*ENVIRONMENT_MARKS, *(os.fsencode(value) for value in secrets(os.environ)))
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(data.find(value) >= 0 for value in wanted)


def _secret(name: str, value: str) -> bool:
    if len(value) < SHORTEST_SECRET or name in PUBLIC_NAMES:
        return False
    mixed = re.search("[A-Za-z]", value) and re.search("[0-9]", value) and not re.search(r"[\s/,]", value)
    return bool(SECRET_NAME.search(name) or (mixed and len(value) >= SHORTEST_UNNAMED))


def _deep(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {key: _deep(each, text) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_deep(each, text) for each in value]
    return value
