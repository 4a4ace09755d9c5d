r"""Units behind a value: which units are equal, and the factor between two of one dimension.

`km/h`, `\mathrm{m\,s^{-2}}`, `\mu\text{m}`, `square inches` and `miles per hour` are read into a factor and a dimension.
Degrees, radians, degrees Celsius and currencies are dimensions of their own, and so are years, which have no fixed
number of days. A noun that is no unit (`8 students`) says what was counted, and is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

Dimension = tuple[tuple[str, int], ...]


class Unit(NamedTuple):
    """A unit as a factor and powers of base units. Two units can be compared if their dimensions are equal."""

    factor: Fraction
    dimension: Dimension


_PREFIXES = {
    "G": 9, "M": 6, "k": 3, "h": 2, "d": -1, "c": -2, "m": -3, "\\mu": -6, "u": -6, "n": -9, "p": -12, "f": -15, "T": 12,
}  # fmt: skip
_PREFIX_WORDS = {
    "giga": 9,
    "mega": 6,
    "kilo": 3,
    "deci": -1,
    "centi": -2,
    "milli": -3,
    "micro": -6,
    "nano": -9,
    "pico": -12,
}
# A unit's symbols and words, how many of what it is. Those in the first table also come with SI prefixes.
_SI = {
    "m": ("meter metre", "1", "m"), "g": ("gram gramme", "1/1000", "kg"), "s": ("sec second", "1", "s"),
    "L": ("l liter litre", "1/1000", "m^3"), "A": ("amp ampere", "1", "A"), "mol": ("mole", "1", "mol"),
    "N": ("newton", "1", "kg m s^-2"), "J": ("joule", "1", "kg m^2 s^-2"), "W": ("watt", "1", "kg m^2 s^-3"),
    "V": ("volt", "1", "kg m^2 s^-3 A^-1"), "Pa": ("pascal", "1", "kg m^-1 s^-2"), "Hz": ("hertz", "1", "s^-1"),
    "\\Omega": ("ohm", "1", "kg m^2 s^-3 A^-2"), "C": ("coulomb", "1", "s A"), "F": ("farad", "1", "kg^-1 m^-2 s^4 A^2"),
    "eV": ("electronvolt", "1", "eV"), "cal": ("calorie", "1", "cal"), "B": ("byte", "8", "bit"), "bit": ("", "1", "bit"),
    "Wh": ("", "3600", "kg m^2 s^-2"), "K": ("kelvin", "1", "K"), "bar": ("", "100000", "kg m^-1 s^-2"),
}  # fmt: skip
_OTHER = {
    "in": ("inch inches", "254/10000", "m"), "ft": ("foot feet", "3048/10000", "m"), "yd": ("yard", "9144/10000", "m"),
    "mi": ("mile", "1609344/1000", "m"), "lb": ("lbs pound", "45359237/100000000", "kg"),
    "oz": ("ounce", "45359237/1600000000", "kg"), "min": ("minute mins", "60", "s"), "h": ("hr hrs hour", "3600", "s"),
    "day": ("", "86400", "s"), "week": ("wk", "604800", "s"), "month": ("", "1/12", "year"), "year": ("yr yrs", "1", "year"),
    "mph": ("", "1609344/3600000", "m s^-1"), "kmh": ("kph", "1000/3600", "m s^-1"), "t": ("tonne", "1000", "kg"), "ton": ("", "1", "ton"),
    "ha": ("hectare", "10000", "m^2"), "acre": ("", "1", "acre"), "gal": ("gallon", "1", "gallon"),
    "atm": ("", "101325", "kg m^-1 s^-2"), "rad": ("radian", "1", "rad"), "\\circ": ("deg degree", "1", "degree"),
    "degC": ("Celsius celsius", "1", "degC"), "degF": ("Fahrenheit fahrenheit", "1", "degF"), "rpm": ("", "1", "rpm"),
    "\\$": ("USD dollar buck", "1", "dollar"), "cent": ("", "1/100", "dollar"), "dB": ("decibel", "1", "dB"),
    "\u20ac": ("EUR euro", "1", "euro"), "\u00a3": ("GBP", "1", "GBP"), "\u00a5": ("JPY yen", "1", "yen"),
    "\u5143": ("CNY RMB yuan", "1", "yuan"), "\u20b9": ("INR Rs rupee", "1", "rupee"), "\u5398\u7c73": ("", "1/100", "m"),
    "\u7c73": ("", "1", "m"), "\u5343\u7c73": ("", "1000", "m"), "\u5343\u514b": ("", "1", "kg"), "\u514b": ("", "1/1000", "kg"),
    "\u79d2": ("", "1", "s"), "\u5206\u949f": ("", "60", "s"), "\u5c0f\u65f6": ("", "3600", "s"), "\u5ea6": ("", "1", "degree"),
}  # fmt: skip
CURRENCIES = {"\\$", "$", "\u20ac", "\u00a3", "\u00a5", "\u20b9", "USD", "EUR", "GBP", "Rs", "Rs.", "INR"}
_PIECE = re.compile(r"\\[A-Za-z]+|\\.|\d+|[^\W\d_]+|[\^*/().-]|\S")


def _dimension(text: str, factor: str) -> Unit:
    powers = [piece.partition("^")[::2] for piece in text.split()]
    return Unit(Fraction(factor), tuple(sorted((name, int(power or 1)) for name, power in powers)))


def _tabulate() -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for symbol, (words, factor, base) in (_SI | _OTHER).items():
        unit = _dimension(base, factor)
        names = words.split()
        table |= dict.fromkeys((symbol, *names, *(f"{word}s" for word in names if len(word) > 2)), unit)
        if symbol.isalpha() and len(symbol) > 2:
            table[f"{symbol}s"] = unit
        if symbol in _SI:
            for prefix, power in _PREFIXES.items():
                table[prefix + symbol] = Unit(unit.factor * Fraction(10) ** power, unit.dimension)
            for prefix, power in _PREFIX_WORDS.items():
                scaled = Unit(unit.factor * Fraction(10) ** power, unit.dimension)
                table |= {f"{prefix}{word}{s}": scaled for word in names if len(word) > 1 for s in ("", "s")}
    return table | {symbol: _dimension(base, factor) for symbol, (_, factor, base) in _OTHER.items()}


_UNITS = _tabulate()
_MODIFIERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_DEGREES, _SCALES = {"\\circ", "degree", "degrees"}, {"c", "f", "celsius", "fahrenheit"}
_UNITS |= dict.fromkeys(("unit", "units"), Unit(Fraction(1), ()))
_AMBIGUOUS = {"in", "bar", "min", "ha", "mol", "day", "unit"}  # words or names of functions as often as units
BARE = (
    {name for name in _UNITS if name.isalpha() and name.isascii() and len(name) > 1} - _AMBIGUOUS
) | _MODIFIERS.keys()


def plain_unit(text: str) -> str:
    """A unit without braces and spacing commands."""
    spaced = re.sub(r"\\[,;:! ]|~|\^(?=\{?\\circ)", " ", text).replace("\\cdot", "*")
    return " ".join(re.sub(r"[{}]", "", spaced).split())


@lru_cache(maxsize=1024)
def unit_of(text: str) -> Unit | None:
    r"""The unit that this text names in full, written as in `m/s^2`, `m s^{-2}` or `miles per hour`; None if none.

    "units" and "square units" name the unit without dimension.
    """
    factor, powers, sign, modifier, count = Fraction(1), dict[str, int](), 1, 1, 0
    for name, power in _named_powers(text):
        if name in ("/", "per"):
            if sign == -1:
                return None
            sign = -1
        elif name in _MODIFIERS:
            modifier = _MODIFIERS[name]
        else:
            unit = _UNITS.get(name) or (_UNITS.get(name.lower()) if len(name) > 3 else None)
            exponent, modifier, count = sign * modifier * power, 1, count + 1
            if unit is None or abs(exponent) > 9:
                return None
            factor *= unit.factor**exponent
            for base, times in unit.dimension:
                powers[base] = powers.get(base, 0) + times * exponent
    if not count:
        return None
    return Unit(factor, tuple(sorted((name, power) for name, power in powers.items() if power)))


def _named_powers(text: str) -> Iterator[tuple[str, int]]:
    """The units of a product or quotient with their exponents, and the signs and words between them."""
    pieces = [piece for piece in _PIECE.findall(plain_unit(text)) if piece not in ("*", ".", "(", ")")][::-1]
    while pieces:
        name = pieces.pop()
        if pieces and (name == "\\mu" or (name in _PREFIXES and pieces[-1] == "\\Omega")):
            name += pieces.pop()
        elif pieces and name in _DEGREES and pieces[-1].lower() in _SCALES:
            name = f"deg{pieces.pop()[0].upper()}"
        exponent = ""
        while pieces and (pieces[-1] in ("^", "-") or pieces[-1].isdecimal()) and not exponent[-1:].isdecimal():
            exponent += pieces.pop()
        digits = exponent.lstrip("^")
        yield name, int(digits) if re.fullmatch(r"-?\d{1,3}", digits) else 1 if not digits else 99
