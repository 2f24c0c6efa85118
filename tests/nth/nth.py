#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Let each call of a program fail once, and check that the program says so and loses nothing.

    nth.py BUILD PROGRAM                  every place of PROGRAM, in every mode
    nth.py BUILD PROGRAM --sample=N       N failures, chosen by --seed
    nth.py BUILD PROGRAM --replay=WHAT    one failure again, as a report names it
    nth.py BUILD PROGRAM --list           the places, with their numbers of calls

PROGRAM is brokerd, gpu (brokerd with a software device and leases), library, lasting (the library
that outlives a broker), brokerctl or layer. BUILD is the build folder.

The programs are the real ones, linked so that their calls of other libraries can fail (nth.h). A place
is a call with its callers. A first run without failures lists the places; then each further run lets one
place fail: "once" its n-th call, "always" that and all later ones, "all" also all later calls of the same
class (memory, files). WHAT is KEY:MODE:N:ERROR, where ERROR is an index into the errors of calls.txt.
"""
import argparse
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import scenes
from page import MODES, Page


def plan(places, every):
    """The failures to try: (place, mode, n, error)."""
    failures = []
    for place in places:
        errors = range(place.n_errors) if every else [place.key % place.n_errors]
        for error in errors:
            failures.append((place, 'once', 1, error))
        if place.n > 1:
            failures.append((place, 'once', 2, errors[0]))
            failures.append((place, 'always', 1, errors[0]))
        if place.n > 4:
            failures.append((place, 'once', place.n // 2, errors[0]))
        if place.kind in ('memory', 'files'):
            failures.append((place, 'all', 1, 0))
    return failures


def name(failure):
    place, mode, n, error = failure
    return f'{place.key:016x}:{mode}:{n}:{error}'


def describe(program, places):
    """Set each place's text: the functions that lead to the call, inner first."""
    frames = sorted({frame for place in places for frame in place.frames if frame})
    result = subprocess.run(['addr2line', '-f', '-s', '-e', program],
                            input=''.join(f'{frame - 1:#x}\n' for frame in frames),
                            capture_output=True, text=True, check=False)
    lines = result.stdout.split('\n')
    names = {frame: function if where[:1] in '?:' or ':?' in where else f'{function} ({where})'
             for frame, function, where in zip(frames, lines[::2], lines[1::2])}
    for place in places:
        place.text = ' < '.join([place.function, *(names.get(frame, '?') for frame in place.frames if frame)])


def attempt(scene, failure, is_replay=False):
    """Return: (problems, failed calls, the error, a report, the places, calls)."""
    with tempfile.TemporaryDirectory(prefix='rbk-nth-') as folder:
        page = Page(os.path.join(folder, 'page'))
        if failure:
            place, mode, n, error = failure
            page.set(mode, place.key, n, error)
        stage = scene(folder, page)
        problems = stage.play()
        places = page.places() if not failure or is_replay else []
        return problems, page.n_failed, page.error, stage.report(), places, page.counts()


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one sentence."""

    def error(self, message):
        self.exit(2, f'{self.prog}: {message}; see {self.prog} --help\n')


def count(text):
    """Parse a number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'it takes a number of at least 1, not {text}')
    return int(text)


def replayed(text):
    """Parse a failure as name() writes it."""
    match = re.fullmatch(f'([0-9a-f]{{1,16}}):({"|".join(MODES[1:])}):([1-9][0-9]*):([0-9]+)', text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f'it takes KEY:MODE:N:ERROR, as a report prints it, not {text}')
    return scenes.Place(int(match[1], 16)), match[2], int(match[3]), int(match[4])


def check_programs(parser, options, program):
    """End where the build folder lacks a program."""
    for path in (program, scenes.path('tests/nth/nth-client'), scenes.path('broker/brokerd'),
                 scenes.path('tools/brokerctl/brokerctl')):
        if not os.path.exists(path):
            parser.error(f'there is no {path}: {options.build} must be a build folder, in which ninja has made it')


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('program', choices=list(scenes.SCENES))
    parser.add_argument('--sample', type=count)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--replay', type=replayed, metavar='KEY:MODE:N:ERROR')
    parser.add_argument('--every', action='store_true', help='every error of each place')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--jobs', type=count, default=2)
    parser.add_argument('--verbose', action='store_true')
    parser.add_argument('--mode', choices=MODES[1:], help='only failures of this mode')
    parser.add_argument('--function', help='only places whose call chain contains this text')
    options = parser.parse_args()
    scenes.BUILD = os.path.abspath(options.build)
    scene = scenes.SCENES[options.program]
    program = scene.program()
    check_programs(parser, options, program)

    if options.replay:
        problems, n_failed, _, report, places, _ = attempt(scene, options.replay, True)
        describe(program, places)
        for place in places:
            if place.key == options.replay[0].key:
                print(place.text)
        print(report)
        print(f'{n_failed} calls failed')
        if n_failed == 0:
            print('no call was reached: the key may be of another build; --list prints those of this one')
            return 1
        print('\n'.join(problems) or 'no problem')
        return 1 if problems else 0

    begin = time.monotonic()
    baseline, _, _, report, places, counts = attempt(scene, None)
    if baseline:
        print('without any failure:', *baseline, report, sep='\n')
        return 1
    print(f'{options.program}: {len(places)} places; {counts[0]} allocations and {counts[1]} other calls '
          f'in a run of {time.monotonic() - begin:.2f} s', flush=True)
    describe(program, places)
    if options.list:
        for place in sorted(places, key=lambda place: -place.n):
            print(f'{place.key:016x} {place.n:6} {place.text}')
        return 0
    failures = plan(places, options.every)
    if options.function:
        failures = [failure for failure in failures
                    if options.function in failure[0].text]
    if options.mode:
        failures = [failure for failure in failures if failure[1] == options.mode]
    if not failures:
        print('no place has this function, or no failure this mode; --list prints the places')
        return 1
    if options.sample:
        chosen = random.Random(options.seed)
        failures.sort(key=lambda failure: (failure[0].text, failure[1:]))
        failures = chosen.sample(failures, min(options.sample, len(failures)))

    n_bad = n_reached = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = pool.map(lambda failure: attempt(scene, failure), failures)
        for i, (failure, outcome) in enumerate(zip(failures, outcomes)):
            if (i + 1) % 100 == 0:
                print(f'{i + 1} of {len(failures)} failures tried', flush=True)
            problems, n_failed, error, report, _, _ = outcome
            n_reached += n_failed > 0
            if not problems and not options.verbose:
                continue
            n_bad += bool(problems)
            error = f' with {os.strerror(error)}' if n_failed else ' (not reached)'
            print(f'--- {failure[1]} {failure[2]}: {failure[0].text}{error}\n'
                  f'repeat: {sys.argv[0]} {options.build} {options.program} --replay={name(failure)}')
            if problems:
                print('\n'.join(problems))
            print(report, flush=True)
    print(f'{options.program}: {len(failures)} failures tried, {n_reached} reached, {n_bad} with a problem; '
          f'{time.monotonic() - begin:.0f} s')
    return 1 if n_bad else 0


if __name__ == '__main__':
    sys.exit(main())
