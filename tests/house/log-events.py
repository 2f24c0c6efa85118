#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kinds of log lines: named and identified once, used, and documented; every document names only these.

    log-events.py ROOT          checks broker/util/log-events.h against the broker and all documents
    log-events.py --self-test   checks that each fault is caught
"""
import re
import sys

import tree

HEADER = 'broker/util/log-events.h'
PAGE = 'doc/ringbroker-log.7'
KIND = re.compile(r'LOG_KIND\(([A-Z0-9_]+),\s*"([^"]*)",\s*"([^"]*)"\)')
DOCUMENT = re.compile(r'(doc/)?[^/]+\.(md|[1578])')
NAMED = re.compile(r'RINGBROKER_EVENT=([a-z-]+)|\blog: ([a-z-]+(?:, [a-z-]+)*) \||the log line `([a-z-]+)`')
DOCUMENTED = re.compile(r'^\.It Cm (\S+) Li (\S+)\n(?!\.It|\.El)', re.MULTILINE)


def kinds(root):
    return KIND.findall(tree.read(root, HEADER)) if HEADER in tree.files(root) else []


def check(root):
    problems = []
    found = kinds(root)
    page = tree.read(root, PAGE) if PAGE in tree.files(root) else ''
    documented = DOCUMENTED.findall(page)
    sources = {path: tree.read(root, path) for path in tree.files(root)
               if path.startswith('broker/') and path.endswith('.c')}
    used = set(re.findall(r'\bLOG_([A-Z0-9_]+)\b', '\n'.join(sources.values())))
    for at, what in ((0, 'constant'), (1, 'name'), (2, 'identifier')):
        values = [kind[at] for kind in found]
        for value in sorted({value for value in values if values.count(value) > 1}):
            problems.append(f'{HEADER}: {what} {value} is there twice')
    for constant, name, identifier in found:
        if name != constant.lower().replace('_', '-'):
            problems.append(f'{HEADER}: {constant} is not called {name}')
        if not re.fullmatch(r'[0-9a-f]{32}', identifier):
            problems.append(f'{HEADER}: {name}: {identifier} is not 32 hexadecimal digits')
        if constant not in used:
            problems.append(f'{HEADER}: {name} is never logged')
        if documented.count((name, identifier)) != 1:
            problems.append(f'{PAGE}: {name} {identifier} is not there once, with a sentence')
    for name, identifier in documented:
        if (name, identifier) not in [kind[1:] for kind in found]:
            problems.append(f'{PAGE}: there is no kind {name} {identifier}')
    names = {kind[1] for kind in found}
    for path in sorted(path for path in tree.files(root) if DOCUMENT.fullmatch(path)):
        for groups in NAMED.findall(tree.read(root, path)):
            problems += [f'{path}: there is no log line {name}' for name in ''.join(groups).split(', ') if name not in names]
    return problems


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    tree.report(check(sys.argv[1]), len(kinds(sys.argv[1])), 'kinds of log lines')


A, B = 'a' * 32, 'b' * 32
GOOD = {
    HEADER: f'LOG_KIND(ONE, "one", "{A}") LOG_KIND(TWO_X, "two-x", "{B}")\n',
    PAGE: f'.It Cm one Li {A}\nText.\n.It Cm two-x Li {B}\nText.\n.El\n',
    'doc/a.md': '`journalctl RINGBROKER_EVENT=one`\n| log: one, two-x | the log line `two-x` |\n',
    'broker/a.c': 'log_info(LOG_ONE, "x"); log_info(LOG_TWO_X, "x");\n',
}


def case(name, path, old, new, expected):
    return (name, {**GOOD, path: GOOD[path].replace(old, new)}, expected)


CASES = [
    ('good', GOOD, None),
    case('never logged', 'broker/a.c', 'LOG_ONE', 'LOG_TWO_X', 'one is never logged'),
    case('not documented', PAGE, f'.It Cm one Li {A}\nText.\n', '', 'one'),
    case('without a sentence', PAGE, f'Li {A}\nText.\n', f'Li {A}\n', 'one'),
    ('documented and not there', {**GOOD, PAGE: GOOD[PAGE] + f'.It Cm three Li {A}\nText.\n'},
     'there is no kind three'),
    case('field', 'doc/a.md', 'EVENT=one', 'EVENT=on', 'there is no log line on'),
    case('table', 'doc/a.md', ', two-x', ', two', 'there is no log line two'),
    case('sentence', 'doc/a.md', '`two-x`', '`two-y`', 'there is no log line two-y'),
    ('identifier twice', {**GOOD, HEADER: GOOD[HEADER].replace(B, A), PAGE: GOOD[PAGE].replace(B, A)},
     f'identifier {A} is there twice'),
    ('short', {**GOOD, HEADER: GOOD[HEADER].replace(B, 'b'), PAGE: GOOD[PAGE].replace(B, 'b')},
     'not 32 hexadecimal digits'),
    ('name', {**GOOD, HEADER: GOOD[HEADER].replace('two-x', 'two'),
              PAGE: GOOD[PAGE].replace('two-x', 'two'), 'doc/a.md': ''}, 'TWO_X is not called two'),
]

if __name__ == '__main__':
    main()
