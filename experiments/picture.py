"""Draw rows of numbers as a small SVG file, without a plot library: panels of lines, axes, and one legend."""

import math
from collections.abc import Sequence
from html import escape

from experiment import Plot, Row, group

COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#66a182", "#2e4057", "#8d6a9f", "#c05805", "#5bc0be", "#6b6b6b", "#a4c639")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 250, 165, 52, 24, 14, 40  # of a panel, and around it
Points = list[tuple[float, float, float]]  # x, y, standard error


class Axis:
    """A linear or logarithmic axis over the pixels of a panel."""

    def __init__(self, values: Sequence[float], pixels: tuple[float, float], log: bool) -> None:
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        if log:
            low, high = math.log10(low), math.log10(high)
        elif low > 0 and low < high / 3:
            low = 0.0
        if high - low < 1e-12:
            low, high = low - 0.5, high + 0.5
        room = 0.03 * (high - low)
        self.low, self.high = (low - room if log or low else low), high + room
        self.pixels, self.log = pixels, log

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        share = ((math.log10(value) if self.log else value) - self.low) / (self.high - self.low)
        return self.pixels[0] + share * (self.pixels[1] - self.pixels[0])

    def ticks(self) -> list[float]:
        """Return about five round values."""
        if self.log:
            first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
            if last - first >= 2:
                return [10.0**power for power in range(first, last + 1, math.ceil((last - first) / 5))]
            some = [digit * 10.0**power for power in range(first - 1, last + 1) for digit in (1, 2, 5)]
            return [value for value in some if self.low <= math.log10(value) <= self.high]
        rough = (self.high - self.low) / 5
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * digit for digit in (1, 2, 5, 10) if size * digit >= rough)
        return [round(step * i, 12) for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def label(value: float) -> str:
    """Return a number in few letters: 0.01, 1e-6, 20k."""
    if value and (abs(value) < 0.001 or abs(value) >= 1e6):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def draw(plot: Plot, rows: Sequence[Row]) -> str:
    """Return the picture as SVG."""
    shown = [row for row in rows if plot.selects(row)]
    panels = {
        ", ".join(_named(name, value) for name, value in zip(plot.panels, key, strict=True)): _lines(plot, part)
        for key, part in group(shown, *plot.panels)
    }
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    columns = max(1, min(plot.columns, len(panels)))
    legend, height = _legend(names, columns * (LEFT + WIDTH + RIGHT), plot.scatter)
    parts = [f'<text x="8" y="17" font-size="13">{escape(plot.title)}</text>', legend]
    for i, (title, lines) in enumerate(panels.items()):
        x, y = i % columns * (LEFT + WIDTH + RIGHT), 26 + height + i // columns * (TOP + HEIGHT + BOTTOM)
        parts += [f'<g transform="translate({x + LEFT} {y + TOP})">', *_panel(plot, title, lines, names), "</g>"]
    across = columns * (LEFT + WIDTH + RIGHT)
    down = 26 + height + math.ceil(len(panels) / columns) * (TOP + HEIGHT + BOTTOM)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" height="{down}"'
    style = 'font-family="sans-serif" font-size="10" fill="#333"'
    return "\n".join([f'{head} role="img" {style}>', f"<title>{escape(plot.title)}</title>",
                      f'<rect width="{across}" height="{down}" fill="#fff"/>', *parts, "</svg>"])  # fmt: skip


def _named(column: str, value: object) -> str:
    text = label(value) if isinstance(value, (int, float)) else str(value)
    return text if isinstance(value, str) else f"{column} {text}"


def _lines(plot: Plot, rows: Sequence[Row]) -> dict[str, Points]:
    """Return the points of each line; a logarithmic axis has no zeros, and an empty cell is no point."""
    lines: dict[str, Points] = {}
    for row in rows:
        for y in (plot.y,) if isinstance(plot.y, str) else plot.y:
            parts = [_named(name, row[name]) for name in plot.lines]
            name = ", ".join([*parts, *([y] if not isinstance(plot.y, str) else [])]) or y
            x, value = row[plot.x], row[y]
            if "" in (x, value) or ("x" in plot.log and x <= 0) or ("y" in plot.log and value <= 0):
                continue
            lines.setdefault(name, []).append((float(x), float(value), float(row[plot.bars]) if plot.bars else 0.0))
    return lines


def _panel(plot: Plot, title: str, lines: dict[str, Points], names: list[str]) -> list[str]:
    points = [point for line in lines.values() for point in line if all(map(math.isfinite, point[:2]))]
    x = Axis([point[0] for point in points], (0, WIDTH), "x" in plot.log)
    y = Axis([point[1] for point in points], (HEIGHT, 0), "y" in plot.log)
    parts = [f'<text y="-6" font-size="11">{escape(title)}</text>' if title else ""]
    for value in x.ticks():
        at = f"{x.place(value):.0f}"
        parts.append(f'<path d="M{at} 0V{HEIGHT}" stroke="#e8e8e8"/>'
                     f'<text x="{at}" y="{HEIGHT + 13}" text-anchor="middle">{label(value)}</text>')  # fmt: skip
    for value in y.ticks():
        at = f"{y.place(value):.0f}"
        parts.append(f'<path d="M0 {at}H{WIDTH}" stroke="#e8e8e8"/>'
                     f'<text x="-5" y="{int(at) + 3}" text-anchor="end">{label(value)}</text>')  # fmt: skip
    name = plot.y if isinstance(plot.y, str) else ""
    parts.append(f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT + 28}" text-anchor="middle">{escape(plot.x)}</text>')
    parts.append(f'<text transform="translate(-41 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
                 f"{escape(name)}</text>" if name else "")  # fmt: skip
    for line, each in lines.items():
        places = [(x.place(a), y.place(b), error, b) for a, b, error in each if math.isfinite(a) and math.isfinite(b)]
        parts.append(_line(places, names.index(line), plot.scatter))
        for pixel, _, error, middle in places if plot.bars else []:
            low = max(middle - error, min(p[1] for p in points))
            ends = f"{y.place(low):.1f}V{y.place(middle + error):.1f}"
            parts.append(f'<path d="M{pixel:.1f} {ends}" stroke="{_colour(names.index(line))}"/>')
    return [*filter(None, parts), f'<path d="M0 0V{HEIGHT}H{WIDTH}" fill="none" stroke="#888"/>']


def _line(places: Sequence[tuple[float, float, float, float]], number: int, scatter: bool) -> str:
    colour = _colour(number)
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y, *_ in places) if scatter or len(places) <= 12 else ""
    size = 2.5 if scatter else 4
    marks = f'<path d="{dots}" stroke="{colour}" stroke-width="{size}" stroke-linecap="round"/>' if dots else ""
    if scatter:
        return marks
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, *_ in places)
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{_dash(number)}/>' + marks


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _dash(number: int) -> str:
    dash = DASHES[number // len(COLOURS) % len(DASHES)] if number >= len(COLOURS) else DASHES[number % 2]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _legend(names: Sequence[str], width: int, scatter: bool) -> tuple[str, int]:
    """Return the legend and its height."""
    if len(names) < 2:
        return "", 0
    parts, x, y = [], 8, 34
    for number, name in enumerate(names):
        room = 34 + round(5.6 * len(name))
        if x + room > width and x > 8:
            x, y = 8, y + 15
        dash = "" if scatter else _dash(number)
        parts.append(f'<path d="M{x} {y - 3}h18" stroke="{_colour(number)}" stroke-width="2"{dash}/>'
                     f'<text x="{x + 22}" y="{y}">{escape(name)}</text>')  # fmt: skip
        x += room
    return "\n".join(parts), y - 24
