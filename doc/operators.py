#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the tables of operators.md, from the capabilities that a broker reports.

    brokerctl devices --capabilities --json | operators.py PAGE            prints a difference, with status 1
    brokerctl devices --capabilities --json | operators.py --update PAGE   writes the tables

The tables lie between lines "<!-- begin NAME -->" and "<!-- end NAME -->". Device 0 is the CPU, device 1 a GPU, for
example software Vulkan (brokerd --gpu=software), which has all optional features.
"""
import difflib
import json
import re
import sys

WIDTH = 127
PART = re.compile(r'(<!-- begin (\w+) -->\n)(.*?)(<!-- end \2 -->\n)', re.DOTALL)


def operators(records):
    """Return a table of operators, those with the same types on both devices in one row."""
    rows = {}
    if any(len(record.get('devices', 'ab')) < 2 for record in records):
        sys.exit('operators.py: these are the capabilities of a broker without a GPU; start it with --gpu=software')
    for record in records:
        if record['type'] == 'operator':
            types = tuple(', '.join(device['types']) or '-' for device in record['devices'][:2])
            rows.setdefault(types, []).append(record["operator"])
    lines = ['| operators | types on the CPU | types on GPUs |', '|---|---|---|']
    for (cpu, gpu), names in sorted(rows.items(), key=lambda row: (-len(row[1]), sorted(row[1]))):
        lines.append(f'| {" ".join(f"`{name}`" for name in sorted(names))} | {cpu} | {"the same" if gpu == cpu else gpu} |')
    return lines


def made(records):
    """Return a paragraph of the further operators of ONNX files."""
    names = sorted({record['operator'] for record in records if record['type'] == 'made-operator'})
    lines = ['']
    for word in (f'`{name}`' for name in names):
        if len(lines[-1]) + len(word) + 2 > WIDTH:
            lines.append('')
        lines[-1] += f'{" " * bool(lines[-1])}{word}'
    return lines


def needs(records):
    """Return a table of what kinds of devices require."""
    lines = ['| backend | types | largest tensor, in elements | required features |', '|---|---|---|---|']
    for record in records:
        if record['type'] == 'need':
            largest = record['largest_tensor']
            lines.append(f'| {record["backend"]} | {", ".join(record["types"])} | '
                         f'{"as memory permits" if largest is None else largest} | {", ".join(record["features"])} |')
    return lines


PARTS = {'operators': operators, 'made': made, 'needs': needs}


def expand(page, text):
    """Return the page with its tables written from JSON lines."""
    records = [json.loads(line) for line in text.splitlines()]

    def write(match):
        return '\n'.join([match[1], *PARTS[match[2]](records), '', match[4]])

    return PART.sub(write, page)


if __name__ == '__main__':
    with open(sys.argv[-1], encoding='utf-8') as source:
        before = source.read()
    after = expand(before, sys.stdin.read())
    if sys.argv[1] == '--update':
        with open(sys.argv[-1], 'w', encoding='utf-8') as target:
            target.write(after)
    else:
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), sys.argv[-1],
                                                   'capabilities'))
        sys.exit(before != after)
