#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library exports exactly what its headers declare, each name under one version.

    symbols.py MAP LIBRARY HEADER...
"""
import re
import subprocess
import sys


def declared(text):
    """Return the header's functions that are not inline."""
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    text = re.sub(r'^#(.*\\\n)*.*$', '', text, flags=re.M)
    text = re.sub(r'static inline[^{]*\{.*?^\}', '', text, flags=re.S | re.M)
    return set(re.findall(r'\b(rbk_\w+)\(', text))


def mapped(text):
    """Return the symbols by version."""
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    return {symbol: version
            for version, body in re.findall(r'(RINGBROKER_[\d.]+) \{\s*global:(.*?)(?:local:|\})',
                                            text, re.S)
            for symbol in re.findall(r'(\w+);', body)}


def exported(library):
    output = subprocess.run(['nm', '-D', '--defined-only', '--with-symbol-versions', library],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    symbols = {}
    for line in output.splitlines():
        _, kind, name = line.split()
        if kind != 'A':
            symbol, _, version = name.partition('@@')
            symbols[symbol] = version
    return symbols


def main(map_file, library, *headers):
    in_header = set()
    for header in headers:
        with open(header, encoding='utf-8') as file:
            in_header |= declared(file.read())
    with open(map_file, encoding='utf-8') as file:
        in_map = mapped(file.read())
    in_library = exported(library)
    problems = []
    for symbol in sorted(in_header ^ set(in_map)):
        problems.append(f'{symbol}: only in the {"header" if symbol in in_header else "map"}')
    for symbol in sorted(set(in_map) ^ set(in_library)):
        problems.append(f'{symbol}: only in the {"map" if symbol in in_map else "library"}')
    for symbol, version in in_library.items():
        if in_map.get(symbol, version) != version:
            problems.append(f'{symbol}: {version} instead of {in_map[symbol]}')
    if len(in_header) < 40:
        problems.append(f'only {len(in_header)} declarations were recognised')
    print('\n'.join(problems) or f'{len(in_library)} symbols')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
