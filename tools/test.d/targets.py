#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Print the files that the selected tests need, as targets for ninja, one per line.

  targets.py DIRECTORY [--no-suite SUITE]... [NAME...]

DIRECTORY is a build folder of meson. --no-suite and NAME select tests as in meson test.
"""

import argparse
import json
import os


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('directory')
    parser.add_argument('--no-suite', action='append', default=[])
    parser.add_argument('name', nargs='*')
    options = parser.parse_intermixed_args()

    def read(what):
        path = os.path.join(options.directory, 'meson-info', f'intro-{what}.json')
        with open(path, encoding='utf-8') as file:
            return json.load(file)

    files = {target['id']: target['filename'] for target in read('targets')}
    wanted = set()
    for test in read('tests'):
        suites = {suite.split(':')[-1] for suite in test['suite']}
        if suites.isdisjoint(options.no_suite) and (not options.name or test['name'] in options.name):
            for target in test['depends']:
                wanted.update(files[target])
    for file in sorted(wanted):
        print(os.path.relpath(file, options.directory))


if __name__ == '__main__':
    main()
