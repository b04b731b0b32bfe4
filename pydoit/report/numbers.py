"""Numbers as people read them: a unit, and as many digits as mean something."""

from __future__ import annotations

import math
import re
from typing import Any

from pydoit.report.reading import number

NONE = "–"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
MINUS = "−"
LONGEST = 120


def significant(value: Any, digits: int = 3) -> str:
    """`13.4`, `1,230`, `2.54×10⁻⁵`; text, such as `inf`, as it is."""
    found = number(value)
    if found is None:
        return value if isinstance(value, str) and value else NONE
    if found == int(found) and abs(found) < 10**7:
        return f"{found:,.0f}".replace("-", MINUS)
    rounded = float(f"{found:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)) + 1e-12)
    if not -4 <= exponent < 7:
        mantissa, _, power = f"{found:.{digits - 1}e}".partition("e")
        return f"{mantissa}×10{str(int(power)).translate(_SUPERSCRIPTS)}".replace("-", MINUS)
    return f"{found:,.{max(digits - 1 - exponent, 0)}f}".replace("-", MINUS)


def trimmed(text: str) -> str:
    """The text of a number without zeros that end its fraction, for ticks and bounds: `5 ms`, not `5.00 ms`."""
    return re.sub(r"(?<=\d)(\.\d*?)0+(?=\D|$)", lambda found: found[1].rstrip("."), text)


def milliseconds(value: Any) -> str:
    """A time that is given in milliseconds: `850 µs`, `13.4 ms`, `2.31 s`."""
    found = number(value)
    if found is None:
        return NONE
    if 0 < abs(found) < 1:
        return f"{significant(found * 1000)} µs"
    return f"{significant(found / 1000)} s" if abs(found) >= 1000 else f"{significant(found)} ms"


def seconds(value: Any) -> str:
    """A time that is given in seconds: `0.04 s`, `5.7 s`, `3 min 20 s`."""
    found = number(value)
    if found is None:
        return NONE
    if found >= 120:
        return f"{int(found // 60)} min {int(found % 60)} s"
    return f"{found:.2f} s" if found < 1 else f"{found:.1f} s"


def size(value: Any) -> str:
    """Bytes: `912 B`, `318 kB`, `23.6 MB`."""
    return scaled(value, "B")


def scaled(value: Any, unit: str) -> str:
    """A quantity with the prefix that fits: `1.23 Tflop/s`."""
    found = number(value)
    if found is None:
        return NONE
    for factor, prefix in _PREFIXES:
        if abs(found) >= factor * 0.9995:
            return f"{significant(found / factor)} {prefix}{unit}".rstrip()
    return f"{significant(found)} {unit}".rstrip()


def percent(value: Any) -> str:
    """A fraction: `12.3 %`, `< 0.1 %`."""
    found = number(value)
    if found is None:
        return NONE
    if 0 < found < 0.001:
        return "< 0.1 %"
    return f"{100 * found:.1f} %"


def relative(new: Any, old: Any) -> float | None:
    """The change from old to new as a fraction of old; None where that says nothing."""
    after, before = number(new), number(old)
    return after / before - 1 if after is not None and before else None


def signed(change: float | None) -> str:
    """A change: `+3.1 %`, `−0.4 %`."""
    if change is None:
        return NONE
    shown = f"{100 * change:+.1f} %"
    return "0.0 %" if shown[1:] == "0.0 %" else shown.replace("-", MINUS)


def shortened(text: Any, longest: int = LONGEST) -> str:
    """The text with its middle left out where it is longer than `longest` characters."""
    shown = str(text)
    if len(shown) <= longest:
        return shown
    tail = (longest - 1) // 3
    return f"{shown[: longest - 1 - tail]}…{shown[len(shown) - tail :]}"


def counted(count: int, noun: str) -> str:
    """`1 kernel`, `27 kernels`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
