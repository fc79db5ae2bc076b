"""Formats of texts and numbers for record_text_snippets.py: str.format, % and the filter format.

What is well-formed is drawn, with a fixed seed; what fails stands below.
"""

import random
import re

VALUES = {
    "s": ["s", "e", "'ab c'", "wide"],
    "i": ["i", "n", "big", "u", "true", "0", "-1", "65", "123456789", "999999"],
    "f": ["f", "g", "tiny", "huge", "1e300", "99.995", "0.0001", "2.5", "0.5", "1e15", "1e16", "123456.0", "-1e-300", "huge * 1e300", "0.1"],
}
VARIABLES = {"s": "h\u00e9llo", "e": "", "wide": "\U0001f600x", "i": 42, "n": -7, "big": 2**63 - 1, "u": 12345678901234567890,
             "f": 1234567.891, "g": -0.0, "tiny": 1e-7, "huge": 1e22, "d": {"k": "v", "x y": [7, {"q": "z"}]}, "l": [1, "a", [2.5]]}


def spec(draw, kind):
    """What may stand behind the colon of a field, for a value of this kind."""
    text = draw.choice(["", "", "", "*", "0", "\u00e9"]) + draw.choice("<>^" if kind == "s" else "<>^=") if draw.random() < 0.4 else ""
    if kind != "s":
        text += draw.choice(["", "", "+", "-", " "]) + ("z" if kind == "f" and draw.random() < 0.1 else "")
        text += draw.choice(["", "", "", "#"])
    text += draw.choice(["", "", "0"]) + draw.choice(["", str(draw.randint(1, 20))])
    if kind == "s":
        return text + draw.choice(["", ".0", ".3"]) + draw.choice(["", "s"])
    last = draw.choice(["d", "d", "n", "", "b", "x", "X", "o"] if kind == "i" else ["f", "F", "e", "E", "g", "G", "%", "n", ""])
    if last != "n":
        text += draw.choice(["", "", "_"] if last in ("b", "x", "X", "o") else ["", "", ",", "_"])
    if kind == "f":
        text += draw.choice(["", f".{draw.randint(0, 20)}"])
    return text + last


def directive(draw, kind):
    """What may stand behind a %."""
    text = "".join(draw.choice(["", "", flag]) for flag in "-+ #0")
    text += draw.choice(["", str(draw.randint(1, 20))]) + draw.choice(["", "", ".", f".{draw.randint(0, 15)}"])
    return text + draw.choice({"s": "sra", "i": "diuxXosr", "f": "eEfFgGd" if kind == "f" else "f"}[kind])


def drawn():
    draw = random.Random(7)
    for _ in range(60):
        kinds = [draw.choice("sif") for _ in range(6)]
        values = [draw.choice(VALUES[kind]) for kind in kinds]
        yield "{{ '" + "|".join("{:" + spec(draw, kind) + "}" for kind in kinds) + "'.format(" + ", ".join(values) + ") }}"
    for _ in range(60):
        kinds = [draw.choice("sif") for _ in range(6)]
        values = [draw.choice([value for value in VALUES[kind] if "1e" not in value and "huge" not in value]) for kind in kinds]
        yield "{{ '" + "|".join("%" + directive(draw, kind) for kind in kinds) + "' % (" + ", ".join(values) + ") }}"


FIELDS = [
    "{{ '{0}{1}{0}'.format(1, 2) }} {{ '{a.k}{a[k]}{a[x y][0]}{a[x y][1].q}{b[2][0]}'.format(a=d, b=l) }}",
    "{{ '{0.k}{1[0]}{1[2]}[{0.no}{1[9]}{0[no]}]'.format(d, l) }} {{ '{0[-1]}|{0.x}'.format(l) }}",
    "{{ '{!r}{!s}{!a}'.format(s, s, s) }} {{ '{0!r:>12}|{0!s:^9}|{0!a:*<20}'.format(wide) }} {{ '{!r}'.format(l) }}",
    "{{ '{:{w}}|{:>{w}.{p}}|{:{f}{a}{w}}'.format(1, f, s, w=8, p=3, f='*', a='^') }} {{ '{:{}}|'.format(s, 7) }}",
    "{{ '{{{}}}'.format(1) }} {{ '{{}}{{'.format() }} {{ '}}'.format() }} {{ ''.format(1) }} {{ '{:}'.format(2) }} {{ '{00}'.format(3) }}",
    "{{ '{}|{}|{}|{}'.format(none, missing, true, d) }} {{ '{:5}|{:d}'.format(true, true) }} {{ '{:c}{:5c}|'.format(65, 128512) }}",
    "{{ ('<{}>{}{!r}' | safe).format('<b>', '<i>' | safe, '<') }} {{ ('{:>6}' | safe).format('&') }} {{ ('{:c}' | safe).format(60) }}",
    "{{ '%(a)s-%(b)d %(a)5s%%' % {'a': 'x', 'b': 2} }} {{ '%(a(b)c)s%()s' % {'a(b)c': 1, '': 2} }} {{ '%s' % d }} {{ 'x' % d }}",
    "{{ '%(a)s %(b).2f' | format(a=1, b=2.5) }} {{ '%s|%5d' | format('a', 3) }} {{ 'x' | format }} {{ 5 | format }}",
    "{{ '%*d|%-*d|%.*f|%*.*f' % (5, 1, 5, 2, 2, 3.14159, 8, 1, 2.55) }} {{ '%*d|' % (-4, 7) }} {{ '%ld%hd%Lf' % (1, 2, 3) }}",
    "{{ '%c%c%3c|' % (65, 'b', 'c') }} {{ '%s' % (l,) }} {{ '%s %s' % (none, missing) }} {{ 'x' % [1] }} {{ 'x' % missing }} {{ '%s' % missing }}",
    "{{ '%d %i' % (2.9, -2.9) }} {{ '%d' % true }} {{ '%e' % 0 }} {{ '%x' % u }} {{ '%d' % u }} {{ '%.3s|' % wide }}",
    "{{ ('<%s>%s%r' | safe) % ('<b>', '<i>' | safe, '<') }} {{ ('%(a)s' | safe) % {'a': '<'} }} {{ ('%.2s' | safe) | format('<') }}",
]

FAILS = [f"{{{{ '{text}'.format(1, 'x', a=d) }}}}" for text in [
    "{", "}", "{0", "{0}}", "{0!}", "{0!x}", "{0!r", "{0!rx}", "{9}", "{b}", "{} {0}", "{0} {}", "{a.}", "{a[k}", "{a[k]x}", "{a[]}", "{a{}}",
    "{a.no.k}", "{:{:{}}}", "{0:s}", "{0:.2}", "{0:.2d}", "{0:zd}", "{0:,x}", "{0:_n}", "{0:,_}", "{0:_,}", "{0:,,}", "{0:+c}", "{0:#c}", "{0:5.}",
    "{0:q}", "{0:dd}", "{0:\u00e9}", "{1:d}", "{1:+}", "{1:=5}", "{1:,}", "{1:#}", "{1:z}", "{1:f}", "{a:5}", "{a:s}", "{.k}", "{ }", "{0 }"]]
FAILS += [f"{{{{ '{text}' % {values} }}}}" for text, values in [
    ("%", "1"), ("%5", "1"), ("%.", "1"), ("%(a", "{'a': 1}"), ("%(a)", "{'a': 1}"), ("%(b)s", "{'a': 1}"), ("%(a)s", "1"), ("%(a)s", "(1,)"),
    ("%(a)s", "[1]"), ("%(a)s %s", "{'a': 1}"), ("%(a)*d", "{'a': 1}"), ("%s", "()"), ("%s %s", "1"), ("x", "1"), ("%s", "(1, 2)"), ("%d", "'1'"),
    ("%d", "none"), ("%x", "1.5"), ("%f", "'1'"), ("%c", "'ab'"), ("%c", "-1"), ("%c", "1.5"), ("%q", "1"), ("%5%", "1"), ("%*d", "('a', 1)"),
    ("%*d", "1"), ("%lld", "1"), ("%d", "huge * 1e300"), ("%(a)s", "missing")]]
FAILS += ["{{ '%s %(a)s' | format(1, a=2) }}", "{{ '{:5}'.format(none) }}", "{{ '{:5}'.format(missing) }}", "{{ '{:>5}'.format(l) }}",
          "{{ ('{:5}' | safe).format('a' | safe) }}", "{{ '{0.k}'.format(missing) }}"]


def used(template):
    return {name: value for name, value in VARIABLES.items() if re.search(rf"\b{name}\b", template)}


FORMATS = [(template, used(template)) for template in [*drawn(), *FIELDS, *FAILS]]
