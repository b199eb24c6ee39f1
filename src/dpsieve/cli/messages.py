"""Messages of the library in the words of the command line: options in place of arguments of Python."""

import re
from collections.abc import Callable, Mapping

_PLAIN = re.compile(r"[\w.,:/+-]+")
_VALUE = r"""\(([^()]*)\)|'([^']*)'|"([^"]*)"|(True)\b|(-?\d[\w.+-]*[\w]|-?\d)"""


def as_typed(message: str, options: Mapping[str, str]) -> str:
    """Return a message with the options, by the names of their arguments, as one types them.

    A name counts as one where a value follows, where it starts the message, or where it has an underscore.

    >>> options = {"bounds": "bounds", "max_rows_per_unit": "max-rows", "q": "quantile"}
    >>> as_typed("bounds is empty. Pass public bounds, such as bounds=(0, 100).", options)
    '--bounds is empty. Pass public bounds, such as --bounds 0,100.'
    >>> as_typed("q=2 is above 1. Pass q=[0.25, 0.5] or max_rows_per_unit=1.", options)
    '--quantile 2 is above 1. Pass --quantile 0.25,0.5 or --max-rows 1.'
    """
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    message = re.sub(r"\[([-\d., ]+)\]", lambda found: _joined(found[1]), message)
    message = re.sub(rf"(?<![\w'\"-])({names})=(?:{_VALUE})", _with_value(options), message)
    message = re.sub(rf"^({names})\b(?!=)", lambda found: f"--{options[found[1]]}", message)
    long = "|".join(sorted((re.escape(name) for name in options if "_" in name), key=len, reverse=True))
    return re.sub(rf"(?<![\w'\"-])({long})\b", lambda found: f"--{options[found[1]]}", message) if long else message


def _with_value(options: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def typed(found: re.Match[str]) -> str:
        name, pair, single, double, flag, number = found.groups()
        if flag:
            return f"--{options[name]}"
        if pair is not None:
            return f"--{options[name]} {_joined(pair)}"
        value = next(one for one in (single, double, number) if one is not None)
        quote = "" if _PLAIN.fullmatch(value) else '"' if "'" in value else "'"
        return f"--{options[name]} {quote}{value}{quote}"

    return typed


def _joined(numbers: str) -> str:
    return re.sub(r",\s+", ",", numbers)
