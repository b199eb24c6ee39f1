"""Behaviour of all commands: plain help, and errors in one line that name options."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dpsieve import validate
from dpsieve.errors import DpsieveError, InvalidValue

_UsageError: Any = typer.BadParameter.__mro__[1]  # of the click that typer has inside, or beside it

# The placeholder of a value in the help, by its type.
_WORDS = {
    "<str>": "TEXT", "<list[str]>": "TEXT", "<int>": "NUMBER", "<int range>": "NUMBER", "<float>": "NUMBER",
    "<path>": "PATH", "<list[path]>": "PATH", "<list[Path]>": "PATH", "<bool>": None,
}  # fmt: skip

# Messages of the option parser, and what is shown instead.
_UNREADABLE = {
    "valid integer": "is not a whole number",
    "valid number|valid float": "is not a number",
    r"greater than or equal to ([\d.]+)": r"is below \1",
    r"less than or equal to ([\d.]+)": r"is above \1",
}


# Arguments in messages of the library. Options have their names, so one rule serves all messages.
_PLAIN = re.compile(r"[\w.,:/+-]+")
_VALUE = r"""(?:\(([^()]*)\)|\[('[^\[\]]*')\]|'([^']*)'|"([^"]*)"|(True)\b|(-?\d[\w.+-]*\w|-?\d|\.\.\.))"""
_ARGUMENT = re.compile(rf"(?<![\w'\"-])([a-z]\w*)(?:={_VALUE}|\b(?!=|/|\.\w))")


class _Formatting(TyperCommand if TYPE_CHECKING else object):  # type: ignore[misc]
    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters; their help shows no Python types."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if hasattr(param, "display_type"):
                kind = param.display_type(ctx)
                is_option = param.param_type_name == "option"
                word = (param.metavar or _WORDS.get(kind, kind)) if is_option else None
                param.display_type_rich = lambda ctx, word=word: word
        return params

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that refuses an option with a single value that is given twice."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found = parse(args=args)
            single = [p for p in found[2] if p.param_type_name == "option" and not (p.multiple or p.is_flag)]
            for param in single if not ctx.resilient_parsing else []:
                if single.count(param) > 1:
                    raise _UsageError(f"{max(param.opts, key=len)} is given more than once. Give it once.", ctx)
            return found

        parser.parse_args = parse_args
        return parser

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        """Read the arguments; raise errors about them in one line."""
        try:
            return super().make_context(*arguments, **more)
        except _UsageError as error:
            raise _plain(error) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command, or find the one to run."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            raise _plain(error) from None


class Command(_Formatting, TyperCommand):
    """A command whose errors name options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        before = _entries(ctx)
        try:
            for param in self.params:
                value = ctx.params.get(param.name)
                for path in value if isinstance(value, list | tuple) else [value]:
                    if isinstance(path, Path):
                        validate.no_address(str(param.name), str(path), hint="Pass a path.")
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            notes = notes_of(error)
            charged = notes if "stays spent" in notes else _charged_since(ctx, before) or notes
            typer.echo(f"interrupted.{charged}", err=True)
            raise typer.Exit(130) from None
        except DpsieveError as error:
            names = frozenset(str(param.name) for param in self.params if param.opts[0].startswith("-"))
            error.args = (spell_options(str(error), names), *error.args[1:])
            raise


def _entries(ctx: Any) -> int | None:
    """Return the number of entries of the ledger of a command; None without one that can be read."""
    path = ctx.params.get("ledger")
    if not isinstance(path, Path) or not path.is_file():
        return None
    from dpsieve.privacy.ledger import Ledger

    try:
        return len(Ledger.open(path))
    except DpsieveError:
        return None


def _charged_since(ctx: Any, before: int | None) -> str:
    """Return whether a command that is interrupted has charged its ledger."""
    after = None if before is None else _entries(ctx)
    if before is None or after is None:
        return ""
    entry = f" The ledger was charged: entry {after} is new, and stays spent."
    return " The ledger was not charged." if after == before else entry


class Group(_Formatting, TyperGroup):
    """A list of commands."""


def _plain(error: Any) -> Exception:
    """Return an error about arguments as one line with a fix."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help itself
        return error  # type: ignore[no-any-return]
    param, text = getattr(error, "param", None), str(error.message)
    name = "" if param is None else max(param.opts, key=len)
    name = name if name.startswith("-") else name.upper()
    if type(error).__name__ == "MissingParameter":
        text = f"{name} is missing."
    elif name:
        found = ((re.search(pattern, text), words) for pattern, words in _UNREADABLE.items())
        text = next((f"{name} {match.expand(words)}." for match, words in found if match), f"{name}: {text}")
    else:
        text = error.format_message()
    if validate.has_password(text):
        text = "An argument that looks like an address is not expected here."
    see = f" See {error.ctx.command_path} --help." if error.ctx is not None else ""
    end = "" if text.endswith("?") else "."
    return InvalidValue(f"{text.rstrip('.')}{end}{see}")


def spell_options(message: str, names: frozenset[str] | None = None) -> str:
    """Return a message with arguments spelled as options.

    A word counts as an argument where a value follows, or, if it is among `names`, where it starts the message or has
    an underscore.

    >>> spell_options("bounds is empty. Pass public bounds, such as bounds=(0, 100).", frozenset({"bounds"}))
    '--bounds is empty. Pass public bounds, such as --bounds 0,100.'
    >>> spell_options("quantile=2 is above 1. Pass quantile=[0.25, 0.5] or max_rows_per_unit=1.")
    '--quantile 2 is above 1. Pass --quantile 0.25,0.5 or --max-rows-per-unit 1.'
    >>> spell_options("privacy_unit=['tenant', 'user id'] holds nulls.")
    "--privacy-unit tenant --privacy-unit 'user id' holds nulls."
    """
    message = re.sub(r"dpsieve\.files\(data, (.*?)\)", r"\1", message)
    message = re.sub(r", or Ledger\(path, .*?\)", "", message)
    message = re.sub(r"^data=(?=')", "", message)
    message = re.sub(r"\[([-\d., ]+)\]", lambda numbers: _join(numbers[1]), message)
    return _ARGUMENT.sub(lambda match: _spell(match, names), message)


def _spell(match: re.Match[str], names: frozenset[str] | None) -> str:
    name, pair, several, single, double, flag, number = match.groups()
    option = f"--{_RENAMED.get(name, name).replace('_', '-')}"
    if names is not None and name not in names and name not in _RENAMED:
        return match[0]
    if pair is not None:
        return f"{option} {_join(pair, ':' if name == 'appear' or name.endswith('_within') else ',')}"
    values = [value for value in (single, double, number) if value is not None]
    if several is not None:
        values = several.strip("'").split("', '")
    if values:
        return " ".join(f"{option} {_quote(value)}" for value in values)
    named = names is not None and ("_" in name or not match.start())
    return option if flag or named else match[0]


_RENAMED = {"memory_limit": "memory", "folder": "out", "path": "out", "form": "format", "sums": "sum", "means": "mean"}
"""Arguments of the library whose option has another name."""


def _quote(value: str) -> str:
    quote = "" if _PLAIN.fullmatch(value) else '"' if "'" in value else "'"
    return f"{quote}{value}{quote}"


def _join(numbers: str, separator: str = ",") -> str:
    return re.sub(r",\s+", separator, numbers)


def notes_of(error: BaseException) -> str:
    """Return the notes of an error, each after a space: whether a ledger was charged before it."""
    return "".join(f" {note}" for note in getattr(error, "__notes__", ()))
