#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws doc/plots/latency.svg: times of products through the broker, beside their kernel.

    brokerbench --json mid | latency.py

The rows are those of one worker, one task in flight, and a client that waits. Both axes are logarithmic.
"""
import json
import math
import os
import re
import sys

PICTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../plots/latency.svg')
PARAMS = re.compile(r'n=(\d+) workers=1 in-flight=1 waiting')
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 420, 64, 16, 40, 48
LINES = (('baseline_p50', 'kernel called directly', '#808080', '6 4'),
         ('p50', 'broker, median', '#1f6fb4', ''),
         ('p99', 'broker, 99 of 100', '#d9822b', '2 3'))


def places(least, most, begin, end):
    """Return a function from a value to its place on a logarithmic axis."""
    step = (end - begin) / (math.log(most) - math.log(least))
    return lambda value: begin + (math.log(value) - math.log(least)) * step


def label(us):
    return f'{us:g} us' if us < 1000 else f'{us / 1000:g} ms'


def picture(rows):
    sizes = [n for n, _ in rows]
    x = places(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    y = places(1, 20000, HEIGHT - BOTTOM, TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for us in (1, 10, 100, 1000, 10000):
        out += [f'<line x1="{LEFT}" y1="{y(us):.1f}" x2="{WIDTH - RIGHT}" y2="{y(us):.1f}" stroke="#dddddd"/>',
                f'<text x="{LEFT - 6}" y="{y(us) + 4:.1f}" text-anchor="end">{label(us)}</text>']
    out += [f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{n}</text>' for n in sizes]
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
               'n of a product of n x n floats</text>')
    for i, (member, name, colour, dashes) in enumerate(LINES):
        points = ' '.join(f'{x(n):.1f},{y(row[member]):.1f}' for n, row in rows)
        style = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}" fill="none"'
        at = LEFT + 12 + i * 190
        out += [f'<polyline points="{points}" {style}/>', f'<path d="M{at} 20h26" {style}/>',
                f'<text x="{at + 32}" y="24">{name}</text>']
    return '\n'.join(out) + '\n</svg>\n'


def main():
    rows = []
    for line in sys.stdin:
        row = json.loads(line)
        found = PARAMS.fullmatch(row['params'])
        if found:
            rows.append((int(found.group(1)), row))
    if len(rows) < 2:
        sys.exit('latency.py: standard input has no rows of "brokerbench --json mid"')
    with open(PICTURE, 'w', encoding='utf-8') as file:
        file.write(picture(sorted(rows, key=lambda row: row[0])))


main()
