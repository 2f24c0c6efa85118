#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Insert the metrics into the manual, from the tables of figures.

    figures.py PAGE TABLES.c...    prints the page, with items in place of each line such as
                                   .\\" FIGURES tenant_figures by tenant
"""
import collections
import re
import sys

Figure = collections.namedtuple('Figure', 'member fields')
TABLE = re.compile(r'^const struct figure (\w+)\[\] = \{\n(.*?)^\};', re.MULTILINE | re.DOTALL)
ROW = re.compile(r'^\t\w+\(([\w.\[\]]+), \d+(.*?)\),\n(?=\t[A-Z{])', re.MULTILINE | re.DOTALL)
FIELD = re.compile(r'\.(\w+) = ((?:"(?:[^"\\]|\\.)*"\s*)+|\w+)')
PLACE = re.compile(r'^\.\\" FIGURES (\w+)(?: by ([a-z, ]+))?\n', re.MULTILINE)


def value(text):
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    return ''.join(parts) if parts else text


def tables(paths):
    """Return {name: [Figure]} of all tables in these files, in the order of their rows."""
    found = {}
    for path in paths:
        with open(path, encoding='utf-8') as file:
            for name, rows in TABLE.findall(file.read()):
                found[name] = [Figure(member, {key: value(text) for key, text in FIELD.findall(fields)})
                               for member, fields in ROW.findall(rows)]
    return found


def item(figure, labels):
    is_counter = figure.fields.get('kind', '').startswith('FIGURE_SINCE')
    labels = labels + ['reason'] * (figure.member == 'reasons')
    return (f'.It Li ringbroker_{figure.fields["metric"]}{"_total" * is_counter}\n'
            f'.Pq {"counter" if is_counter else "gauge"}{" by " * bool(labels)}{", ".join(labels)}\n'
            f'{figure.fields["help"]}.\n')


def expand(found, page):
    """Return the page with its FIGURES lines expanded. @found: the result of tables()."""
    return PLACE.sub(lambda match: ''.join(item(figure, (match[2] or '').split(', ') if match[2] else [])
                                           for figure in found[match[1]] if 'metric' in figure.fields), page)


if __name__ == '__main__':
    with open(sys.argv[1], encoding='utf-8') as source:
        sys.stdout.write(expand(tables(sys.argv[2:]), source.read()))
