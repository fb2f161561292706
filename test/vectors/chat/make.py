"""Writes expected/ and jinja-snippets.json: what transformers renders of templates/ and of the snippets below.

Needs `pip install jinja2 transformers`. A snippet is a template and its variables; its name is the template.
"""

import datetime
import json
from pathlib import Path

import jinja2
from transformers.utils import chat_template_utils

HERE = Path(__file__).parent
NESTED = {"a": [1, 0.5, None, True, "it's", 'a "b"', "é\n"], "b": {}}
PEOPLE = [{"n": "b", "v": 2}, {"n": "A", "v": 1}, {"n": "c"}]
LATER = {"items": {"a": 1}, "get": 2, "keys": 3}

# Variables of a template, and templates of them.
SNIPPETS = [
    ({"x": None, "m": {}, "l": [], "d": NESTED}, [
        "{{ x }}|{{ m.c }}|{{ true }}|{{ none }}|{{ d }}|{{ [m.c] }}|{{ l }}|{{ {} }}|{{ () }}|{{ (1,) }}|{{ (1, 'a') }}",
        "{{ d.keys() }}{{ d.b.items() }}{{ d.a[:2] | map('string') | list }}{{ range(3) }}{{ range(4, 1, -2) | list }}",
        "{{ 1.0 }} {{ 1e16 }} {{ 1.5e-7 }} {{ 0.0001 }} {{ 123456789.125 }} {{ -0.0 }} {{ 1e400 }} {{ 2.5e20 }} {{ 1_000 }}",
        "{{ 'tab\t' | list }}{{ ['\\u200b', '\\xa0', '\\x7f', 'é', '😀', '\\\\', \"'\", '\"', '\\'\"'] }}",
        "{{ x | string }}{{ d | string }}{{ x | trim }}{{ m.c | trim }}{{ l | trim }}{{ d.a | upper }}{{ x | lower }}{{ 5 | title }}",
        "{{ m.c | length }}{{ l | length }}{{ d | length }}{{ 'né😀' | length }}{{ d.a | count }}",
        "{{ x | length }}", "{{ 5 | length }}", "{{ x | list }}", "{{ x | join }}", "{{ m.c.d }}", "{{ m.c + 'a' }}", "{{ 'a' + x }}",
        "{{ 'a' + 1 }}", "{{ l + 'a' }}", "{{ x.y }}", "{{ x.y.z }}", "{{ x['y'] }}", "{{ 'a' in x }}", "{{ 1 in 'a' }}", "{{ m() }}",
        "{{ m.c() }}", "{{ m['c'] }}", "{{ 'abc'.nope }}", "{{ 'abc'.nope() }}", "{{ m | items | list }}{{ m.c | items | list }}",
        "{{ 'a' | items | list }}", "{{ -x }}", "{{ x < 1 }}", "{{ m.c < 1 }}", "{{ m.c == m.d }}{{ m.c == x }}{{ 'a' in m.c }}{{ m.c in l }}",
        "{{ d | tojson }}", "{{ d | tojson(indent=2) }}", "{{ d | tojson(indent=2, separators=(',', ':')) }}", "{{ d | tojson(indent=0) }}",
        "{{ d | tojson(ensure_ascii=true, sort_keys=true) }}", "{{ d | tojson(separators=(',', ':')) }}", "{{ [(1, 2), 1.0] | tojson }}",
        "{{ m.c | tojson }}", "{{ d.items() | tojson }}", "{{ {1: 'a', none: 2, 7: 3} | tojson }}", "{{ {(1, 2): 3} | tojson }}",
        "{{ d.pop('a') }}", "{{ l.append(1) }}", "{{ d.update }}", "{{ d.__class__ }}", "{{ d.__class__.x }}", "{{ 'a'.__len__() }}",
    ]),
    ({"d": LATER, "k": "a"}, [
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d['items'].a }}{{ d.get('get') }}{{ d['get'] }}{{ d.keys() | list }}",
        "{{ d.get('nope') }}{{ d.get('nope', 'z') }}{{ d.get(k) is none }}{{ 'items' in d }}{{ 'nope' not in d }}{{ 1 in d }}",
        "{{ d.values() | list }}{{ d.keys()[0] }}{{ d.items() | length }}{{ d.copy() == d }}", "{{ d.get() }}", "{{ d.get([]) }}",
        "{% set e = {0: 'a', 5: 'b', '5': 'c', none: 'n'} %}{{ e[5] }}{{ e['5'] }}{{ e[none] }}{{ e[7] }}{{ e }}{{ e.get(0) }}{{ e[0.0] }}",
        "{{ {'a': 1, 'a': 2} }}{{ {1: 'x', 1.0: 'y'} }}", "{{ {[]: 1} }}", "{{ dict(a=1) }}{{ dict([('b', 2)], c=3) }}{{ dict(d) == d }}",
        "{% for k in d %}{{ loop.index }}{{ k }}{% endfor %}{{ d | list }}{{ d | first }}{{ d | join('+') }}{{ d | dictsort }}",
        "{{ {'b': 1, 'A': 3, 'c': 2} | dictsort }}{{ {'b': 1, 'A': 3} | dictsort(true) }}{{ {'b': 1, 'a': 3} | dictsort(by='value', reverse=true) }}",
    ]),
    ({"x": "\n a-b \n", "u": "Ünï 😀 ẞtr", "s": "a,b,,c"}, [
        "[{{ x.lstrip('\n') }}][{{ x.rstrip('\n') }}][{{ x.strip('\n ') }}][{{ x.strip() }}][{{ x | trim }}][{{ x | trim('\n') }}][{{ '-a-'.strip('-') }}]",
        "{{ s.split(',') }}{{ s.split(',', 1) }}{{ s.split(',', maxsplit=2) }}{{ x.split() }}{{ ' a b c '.split(none, 1) }}{{ s.rsplit(',', 1) }}", "{{ s.split('') }}",
        "{{ ' a b '.split(' ') }}{{ ''.split() }}{{ ''.split(',') }}{{ s.split(',')[-1] }}{{ s.rsplit(',') }}{{ 'a\r\nb\n\nc'.splitlines() }}{{ 'a\nb'.splitlines(true) }}",
        "{{ s.replace(',', ';') }}{{ s.replace(',', ';', 1) }}{{ 'ab'.replace('', '-') }}{{ s | replace(',', '') }}{{ s | replace(',', 1) }}{{ s | replace(',', '$&', 2) }}",
        "{{ s.replace(',', 1) }}", "{{ s.find('b') }}{{ s.find('z') }}{{ s.rfind(',') }}{{ '😀a'.find('a') }}{{ s.count(',') }}{{ 'aaa'.count('aa') }}",
        "{{ s.startswith('a') }}{{ s.startswith(('x', 'a')) }}{{ s.endswith(('c', 'd')) }}{{ s.endswith('d') }}", "{{ s.startswith(1) }}",
        "{{ s.startswith(['a']) }}", "{{ u.upper() }}{{ u.lower() }}{{ u.title() }}{{ u | title }}{{ u | capitalize }}{{ 'aBC dE-fg (hi)' | title }}{{ \"it's aBC\".title() }}{{ 'éA'.capitalize() }}",
        "{{ u[4] }}{{ u[-1] }}{{ u[:4] }}{{ u[::-1] }}{{ u[99] }}{{ u[2:1] }}{{ u[-3:] }}{{ s[1:4:2] }}{{ [1, 2, 3][::-1] }}{{ (1, 2, 3)[1:] }}{{ s[none:2] }}",
        "{{ s['x':] }}", "{{ [1][1.0] }}", "{{ s[0:1][0] }}", "{{ [1, 2, 3][true] }}{{ [1][5] }}{{ [1][-2] }}", "{{ 'a' * 3 }}{{ 3 * 'ab' }}{{ [1] * 2 }}{{ 'a' * -1 }}{{ (1,) * 2 }}",
        "{{ 'a{}b'.format(1) }}{{ '{1}{0}'.format('a', none) }}{{ '{x}{{}}'.format(x=true) }}{{ '{}-{}'.format([1], 'a{}') }}{{ '{x}{0}'.format(1, x=2) }}",
        "{{ '{}'.format() }}", "{{ '{'.format(1) }}", "{{ '{:d}'.format('a') }}", "{{ '{0}{}'.format('a') }}",
        "{{ '%s-%d|%%|%d' % ('a', 3.9, true) }}{{ 'a' % [1] }}{{ '%s' % none }}{{ '%s' | format('x') }}",
        "{{ '%d' % 'a' }}", "{{ '%s %s' % ('a',) }}", "{{ '%s' % ('a', 'b') }}", "{{ '%s' % [1, 2] }}", "{{ ','.join(['a', 'b']) }}{{ ','.join(s.split(',')) }}", "{{ ','.join([1]) }}",
        "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removesuffix('') }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'aB'.isupper() }}{{ 'ab1'.islower() }}",
        "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb\n\nc' | indent(2, true) }}|{{ 'a\n\nb' | indent(1, blank=true) }}|{{ 'a\nb' | indent('>') }}|{{ 'a\n' | indent }}", "{{ none | indent }}",
        "{{ 'ab' | reverse }}{{ 'ab' | list }}{{ 'ab' | first }}{{ 'ab' | last }}{{ 'ab' | join('-') }}",
    ]),
    ({"x": "<\"'&>", "y": "a"}, [
        "{{ '<'|safe + x }}|{{ x + '<'|safe }}|{{ x ~ '<'|safe }}|{{ x | e }}|{{ x | escape | escape }}", "{{ (x | safe) + 1 }}", "{{ '<'|safe + x + y }}|{{ ('<'|safe ~ x) + x }}|{{ ('<'|safe).upper() + x }}",
        "{{ '<%s>'|safe % x }}|{{ ('<{}>'|safe).format(x) }}|{{ ('<'|safe).join([x, y]) }}|{{ ('a<b'|safe).split('<') }}|{{ ('a'|safe).replace('a', x) }}|{{ ('<'|safe)[0] + x }}",
        "{{ ('<'|safe) is string }}{{ ('<'|safe) == '<' }}{{ ('<'|safe) | length }}{{ {'<'|safe: 1}['<'] }}{{ ['<'|safe] }}{{ ('<'|safe) | tojson }}{{ ('<' | safe | string) + x }}{{ ('<' | safe | trim) + x }}",
        "{% set a %}<{% endset %}{{ a + x }}{% macro f() %}<{% endmacro %}{{ f() + x }}{{ ('<' | safe | replace('<', '>')) + x }}{{ x | tojson | safe + x }}{{ none | safe }}",
    ]),
    ({"p": PEOPLE, "n": None, "m": {}}, [
        "{{ p | map(attribute='n') | list }}{{ p | map(attribute='v', default=0) | list }}{{ p | map(attribute='v') | list }}{{ ['a'] | map('upper') | join }}{{ [' a '] | map('trim') | list }}{{ ['ab'] | map('replace', 'a', 'b') | list }}",
        "{{ p | selectattr('v') | list }}{{ p | selectattr('v', 'equalto', 2) | map(attribute='n') | list }}{{ p | rejectattr('v', 'defined') | list }}", "{{ p | selectattr('v', 'gt', 1) | list }}", "{{ p | selectattr('v', 'in', [1]) | list }}",
        "{{ n | selectattr('v') | list }}{{ m.c | selectattr('v') | list }}{{ n | map('upper') | list }}{{ [1, 2, 3, 4] | select('even') | list }}{{ [0, 1, none] | select | list }}{{ [1, 2] | reject('odd') | list }}{{ 0 | select | list }}", "{{ 5 | select | list }}",
        "{{ p | selectattr('v') | length }}", "{{ (p | map(attribute='n')) is iterable }}", "{% set g = p | map(attribute='n') %}{{ g | list }}{{ g | list }}{{ 1 if g }}", "{{ (p | map(attribute='n'))[0] }}", "{{ p | map(attribute='n') | last }}",
        "{{ p | map(attribute='n') | first }}{{ p | sort(attribute='n') | map(attribute='n') | join }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ [3, 1.5, true] | sort(reverse=true) }}{{ p | sort(attribute='n', reverse=true) | map(attribute='n') | list }}",
        "{{ [1, 'a'] | sort }}", "{{ p | sort(attribute='v') }}", "{{ [3, 1] | min }}{{ [3, 1] | max }}{{ ['b', 'A'] | min }}{{ [] | max }}{{ p[:2] | max(attribute='v') }}{{ [1, 2, 0.5] | sum }}{{ p[:2] | sum(attribute='v', start=10) }}", "{{ ['a'] | sum }}",
        "{{ [1, 1, 2, 'a', 'A', 1.0, true] | unique | list }}{{ p | unique(attribute='n') | list | length }}", "{{ [[1]] | unique | list }}", "{% for g, l in [{'a': 'x'}, {'a': 'X'}, {'a': 'b'}] | groupby('a') %}{{ g }}{{ l }}{% endfor %}{{ ([{'a': 1}] | groupby('a'))[0].grouper }}{{ [{'a': 1}] | groupby('a') }}",
        "{{ [1, 2, 3] | first }}{{ [] | first }}{{ [1, 2] | last }}{{ [] | last }}{{ [1, 2] | reverse | list }}{{ {'a': 1} | last }}{{ [[1, 2], [3]] | map('first') | list }}", "{{ n | first }}",
        "{{ m.c | default('z') }}{{ n | default('z') }}{{ n | default('z', true) }}{{ '' | d('y', boolean=true) }}{{ m.c | default }}{{ m.c | default(none) }}", "{{ [1, none, 'a', m.c] | join('-') }}{{ p | join(',', attribute='n') }}{{ [[1], {'a': 2}] | join }}{{ [1, 2] | join(0) }}", "{{ n | default([]) | join }}",
        "{{ '5' | int }}{{ ' 5 ' | int + 1 }}{{ '5.9' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ 5.9 | int }}{{ -5.9 | int }}{{ true | int }}{{ n | int }}{{ '1_0' | int }}{{ [] | int(3) }}", "{{ m.c | int }}", 
        "{{ -5 | abs }}{{ -1.5 | abs }}{{ true | abs }}", "{{ 'x' | abs }}", "{{ 1 | nope }}", "{{ [1] | map(' is defined') | list }}", "{{ (' nothing', 1) }}{{ [1 -1, 3 -1, (2)-1, 'x' if -1 else +2, not -0] }}", "{{ 'a' | upper(1) }}", "{{ 'a' | trim(foo=1) }}",
    ]),
    ({"l": [1, 2, 3], "e": [], "s": "ab", "m": {}}, [
        "{% for i in l %}{{ i }}{% if i == 2 %}x{% break %}{% endif %},{% endfor %}", "{% for i in l %}{{ i }}{% if i == 2 %}{% continue %}{% endif %},{% endfor %}", "{% for i in l %}{% if i == 1 %}{% set a = 'x' %}{% endif %}[{{ a }}]{% endfor %}{{ a }}",
        "{% for i in l %}{% break %}{% else %}none{% endfor %}{% for i in e %}{% else %}empty{% endfor %}{% for i in l if i > 5 %}{% else %}no{% endfor %}{% for i in l %}{% continue %}{% else %}c{% endfor %}", "{% for i in l if i != 2 %}{{ loop.index }}{{ loop.length }}{{ loop.last }}{{ i }} {% endfor %}",
        "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.previtem is defined }} {% endfor %}", "{% for i in l %}{{ loop.depth0 }}{% endfor %}{{ loop }}",
        "{% for a, b in [('x', 'y'), ['z', 1]] %}{{ a }}{{ b }}{% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for c in s %}{{ c }},{% endfor %}{% for c in m.c %}x{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for i in 5 %}{% endfor %}",
        "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}<{{ loop(x) }}>{% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}", "{% for x in l recursive %}{{ x }}{% endfor %}{% for x in l if x > 1 recursive %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop(l) }}{% endfor %}", "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns['x'] }}{{ ns.y }}{{ ns }}", "{% set m.x = 1 %}", "{% set ns = namespace(_a=1) %}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
        "{% set a, b = ('x', 'y') %}{{ a }}{{ b }}{% set (c, d) = [1, 2] %}{{ c }}{{ d }}{% set t = 1, 2 %}{{ t }}", "{% set a, b = [1] %}", "{% set a %}x{% set b = 1 %}{% endset %}{{ a }}{{ b }}{% set c | upper %}y{% endset %}{{ c }}", "{% if true %}{% set z = 1 %}{% endif %}{{ z }}{% if e %}a{% elif l %}b{% else %}c{% endif %}{{ 'x' if e }}{{ 'x' if e else 'y' if e else 'z' }}",
        "{% filter upper %}a{{ s }}{% set q = 1 %}{% endfilter %}{{ q }}{% filter replace('a', 'b') %}a{% endfilter %}", "{% generation %}a{% set v = 1 %}{% endgeneration %}{{ v }}", "{% for i in l %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}", "a {%- generation -%} b {%- endgeneration %} c",
    ]),
    ({"x": 1}, [
        "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, c=3) }}|{{ f(b=1) }}|{{ f(a=5) }}|{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 'b', c=3) }}",
        "{% macro f() %}{{ i }}{{ x }}{% endmacro %}{% for i in [5] %}{{ f() }}{% endfor %}", "{% macro f() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ f() }}{% set y = 2 %}{{ f() }}", "{% macro g() %}{{ f(2) }}{% endmacro %}{% macro f(a) %}<{{ a }}>{% endmacro %}{{ g() }}{% set d = {'f': f} %}{{ d.f(1) }}{{ d['f'](3) }}", "{% macro f() %}{% set x = 9 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}",
        "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}y{% endcall %}{% macro g(a) %}{{ caller(a, 2) }}{% endmacro %}{% call(p, q) g(1) %}{{ p }}{{ q }}{{ x }}{% endcall %}", "{% macro f() %}{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{% endmacro %}{{ f() | length }}{{ f() is string }}{{ f is callable }}", "{{ nope() }}", "{% macro f(a=1) %}{{ a is defined }}{% endmacro %}{{ f(none) }}{{ f() }}", "{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 3, 'b': 4}) }}", "{{ raise_exception('no') }}", "{{ raise_exception(x) }}",
    ]),
    ({"a": 7, "b": 2, "f": 0.5, "s": "x", "n": None, "m": {}}, [
        "{{ a // b }}{{ a / b }}{{ a % b }}{{ -1 % 3 }}{{ -7 // 2 }}{{ 2 ** 3 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ 2 ** 3 ** 2 }}{{ f * 2 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}{{ true + 1 }}{{ a - -1 }}{{ +a }}{{ 4 / 2 }}{{ 0 * -1 }}", "{{ a / 0 }}", "{{ a % 0 }}", "{{ a // 0.0 }}", "{{ 0 ** -1 }}",
        "{{ 1 == 1.0 }}{{ 1 == true }}{{ '1' == 1 }}{{ [1] == [1.0] }}{{ (1,) == [1] }}{{ {'a': 1} == {'a': 1} }}{{ n == false }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 'B' < 'a' }}{{ 1 < true }}", "{{ 'a' < 1 }}", "{{ [1] < (1,) }}", "{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 1 == 1 == 1 }}{{ (1 == 2) == false }}{{ 1 < 3 in [3] }}{{ 1 != 2 != 1 }}{{ (a == 7) != (b == 2) }}",
        "{{ a ~ b }}{{ n ~ m.c ~ true ~ [1] ~ f }}{{ 'x' + s ~ 1 }}{{ (1 + 2) ~ 'x' }}", "{{ 1 + 2 ~ 'x' }}", "{{ 1 in [1.0] }}{{ true in [1] }}{{ [1] in [[1]] }}{{ '' in 'a' }}{{ n in [none] }}{{ 'a' not in ['a'] }}{{ not 'a' in ['a'] }}{{ 1 in (1, 2) }}{{ 'k' in {'k': 1} }}", "{{ 1 in 1 }}", "{{ [] in {} }}",
        "{{ a and b }}{{ 0 or n }}{{ [] and 1 }}{{ '' or 'z' }}{{ not n }}{{ not m.c }}{{ not f }}{{ m or 1 }}{{ n and 1 }}{{ not a == 8 }}{{ true and not false or false }}", "{{ 1.0 }}{{ 1e3 }}{{ 1_0 }}{{ [-1, - 1, +1] }}{{ -a | abs }}{{ a|string|length }}",
        "{{ a is defined }}{{ q is defined }}{{ n is none }}{{ q is none }}{{ m.c is undefined }}{{ a is number }}{{ true is number }}{{ true is integer }}{{ a is integer }}{{ f is float }}{{ true is boolean }}{{ s is string }}{{ n is string }}{{ m is mapping }}{{ [] is mapping }}", "{{ m is iterable }}{{ s is iterable }}{{ a is iterable }}{{ q is iterable }}{{ q is sequence }}{{ m is sequence }}{{ s is sequence }}{{ (1,) is sequence }}{{ m.items() is sequence }}{{ m.items() is iterable }}{{ n is sequence }}{{ range(2) is sequence }}",
        "{{ 4 is even }}{{ 3 is odd }}{{ 6 is divisibleby(3) }}{{ 6 is divisibleby 4 }}{{ a is eq 7 }}{{ a is equalto(7) }}{{ a is ne 7 }}{{ a is gt 3 }}{{ a is lt(3) }}{{ a is ge 7 }}{{ a is le 6 }}{{ n is sameas none }}{{ a is in [7] }}{{ s is in('xy') }}{{ a is not in [7] }}{{ a is not none }}{{ s is lower }}{{ s is upper }}{{ '' is lower }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ s is not string }}", "{{ 'a' is even }}", "{{ a is nope }}", "{{ q is even }}", "{{ a is number and b is number }}{{ a is defined or false }}{{ 'y' if a is string else 'n' }}{{ not a is none }}{{ a is none == false }}{{ (a is none) == false }}", "{{ a is sameas a is none }}", "{{ a == 7 is true }}{{ a is number ~ 'x' }}",
    ]),
    ({"x": "v"}, [
        "  {% if true %}\n  a\n  {% endif %}\n b {{ x }}\n", "a\n  {%- if true -%}  \n b  {%- endif +%}\nc", "  {%+ if true %}a{% endif %}\n", "a {#- c -#} b\n  {# d #}\ne\n{# f\ng #}h", "{% raw %}{{ x }} {% if %}{% endraw %}\n{%- raw -%} a {%- endraw -%} b", "\t{% set a = 1 %}\n\n{{ a }}\n\n", "{{ x }}\n  ", "{% if x %}\n{% endif %}\n \t\n  ", "{# c #}\n  {{ x }}\n  {# d -#}\n  ", "{{ x -}}  \n  {{- x }}\n\n", "a\r\nb\r\n{% if x %}\r\nc{% endif %}\r\n", "{{ 'a' 'b' }}{{ \"it's\" }}{{ '\\n\\t\\x41\\u00e9\\d\\'' }}{{ 'a\\\nb' }}", "{{ '}}' }}{{ '{%' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {}} }}", "x -}\ny {- z\n  {-a", "{{ x }", "{% if x %}", "{{ x | }}", "{% nope %}", "{{ 'a }}", "{{ (1 }}", "{{ x y }}", "{% for x %}{% endfor %}", "{% endif %}", "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}{{ ('a') }}{{ ((1, 2), 3) }}", "{{ x.0 }}{{ [[1, 2]].0.1 }}{{ x[0] }}{{ 'abc'[1:][0] }}{{ x.upper().lower() }}{{ (x ~ 'b').upper() }}{{ [1, 2][0] + 1 }}", "{% set x = 'a' %}{{ x }}", "{% set true = 1 %}",
        "{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %I %p %y %j %-d %-m %-H %e %%') }}", "{{ x if x == 'v' }}{{ (x if false) is defined }}{{ x | default('a') | upper | lower }}{{ x|upper if true else x }}", "{{ tools }}{{ documents is none }}{{ tools is defined }}{{ messages[0].role }}{{ bos_token }}{{ add_generation_prompt }}", "{{ x is defined and x is not none and x | length > 0 }}{{ x.split('')[0] if false else 'k' }}", "{{ lipsum is defined }}{{ range(1, 10, 3) | list }}{{ range(0) | list }}{{ range(3)[1] }}{{ range(2) | length }}", "{{ range('a') }}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ 2 in range(3) }}",
    ]),
]


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 26, 9, 5, 3)


def render(template, messages, tools=None, addGenerationPrompt=True, variables=None, name=None):
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages],
            tools=tools,
            chat_template=template,
            add_generation_prompt=addGenerationPrompt,
            bos_token="<s>",
            eos_token="</s>",
            **(variables or {}),
        )
        return {"text": texts[0]}
    except Exception as error:
        is_refused = type(error) is jinja2.exceptions.TemplateError
        return {"refused" if is_refused else "error": str(error)}


def write(path, values):
    text = json.dumps(values, ensure_ascii=False, indent=1) + "\n"
    (HERE / path).write_text(text, encoding="utf-8")


def main():
    chat_template_utils.datetime = Now
    conversations = json.loads((HERE / "conversations.json").read_text(encoding="utf-8"))
    for path in sorted((HERE / "templates").glob("*.jinja")):
        template = path.read_bytes().decode("utf-8")
        write(f"expected/{path.stem}.json", {each["name"]: render(template, **each) for each in conversations})
    messages = [{"role": "u", "content": "hi"}]
    snippets = []
    for variables, templates in SNIPPETS:
        for template in templates:
            result = render(template, messages, variables=variables)
            snippets.append({"name": template, "template": template, "variables": variables, **result})
    write("jinja-snippets.json", snippets)


if __name__ == "__main__":
    main()
