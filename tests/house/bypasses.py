#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every bypass of the layer that ringbroker-leases(7) lists, and every countermeasure, has tests.

    bypasses.py ROOT          checks that each row of that table names its tests, and these exist
    bypasses.py --self-test   checks that each fault is caught

Below each .It the page has a comment, Tests: PROGRAM CASE[, PROGRAM CASE...]. PROGRAM is a test's file
without folder and suffix, CASE a function of that file.
"""
import os
import re
import sys

import tree

PAGE = 'doc/ringbroker-leases.7'
TABLE = re.compile(r'^\.Sh WAYS AROUND THE LAYER\n.*?^\.Bl [^\n]*\n(.*?)^\.El\n', re.DOTALL | re.MULTILINE)
ROW = re.compile(r'^\.It ([^\n]*)\n((?:\.\\" [^\n]*\n)*)', re.MULTILINE)


def rows(root):
    table = TABLE.search(tree.read(root, PAGE) if PAGE in tree.files(root) else '')
    return ROW.findall(table.group(1)) if table else []


def check(root):
    problems = []
    programs = {os.path.splitext(os.path.basename(path))[0]: path for path in tree.files(root)
                if path.startswith('tests/') and path.endswith(('.c', '.py'))}
    for name, comment in rows(root):
        tests = comment.replace('.\\"', ' ').strip()
        if not tests.startswith('Tests: '):
            problems.append(f'{PAGE}: "{name}" names no test')
            continue
        for words in (test.split() for test in tests[len('Tests: '):].split(',')):
            if len(words) != 2:
                problems.append(f'{PAGE}: "{name}": "{" ".join(words)}" is no program and case')
            elif words[0] not in programs:
                problems.append(f'{PAGE}: "{name}": there is no test {words[0]}')
            elif not re.search(rf'\b(def |TEST\(|TEST_IN\("[^"]*", ){re.escape(words[1])}\b',
                               tree.read(root, programs[words[0]])):
                problems.append(f'{PAGE}: "{name}": {words[0]} has no {words[1]}')
    return problems


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    tree.report(check(sys.argv[1]), len(rows(sys.argv[1])), 'ways round the layer')


GOOD = {
    PAGE: '.Sh WAYS AROUND THE LAYER\nText.\n.Bl -tag\n'
          '.It One\n.\\" Tests: a test_one, test-b test_two\nThe layer.\n'
          '.It Two\n.\\" Tests: a test_one,\n.\\" test-b test_two\nNothing.\n'
          '.El\n.Bl -tag\n.It Not of the table\n.El\n',
    'tests/x/a.py': 'def test_one():\n    pass\n',
    'tests/y/test-b.c': 'TEST(test_two, begin, end)\n{\n}\n',
}


def case(name, path, old, new, expected):
    return (name, {**GOOD, path: GOOD[path].replace(old, new)}, expected)


CASES = [
    ('good', GOOD, None),
    case('no test', PAGE, '.It Two\n.\\" Tests: a test_one,\n.\\" test-b test_two\n', '.It Two\n',
         '"Two" names no test'),
    case('no such program', PAGE, '.\\" test-b', '.\\" test-c', 'there is no test test-c'),
    case('no such case', PAGE, 'Tests: a test_one, ', 'Tests: a test_on, ', 'a has no test_on'),
    case('no case', PAGE, 'Tests: a test_one, ', 'Tests: a, ', '"a" is no program and case'),
]

main()
