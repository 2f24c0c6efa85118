#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Check a model of a protocol in all orders of its steps, and that its mutants fail.

    spin.py [--cc COMMAND] [--only NAME] [--trail] [--known FILE] MODEL.pml
    spin.py [--cc COMMAND] --record FILE MODEL.pml
    spin.py [--cc COMMAND] --self-test     checks that each fault is noticed

The head of a model has a line for each run:

    check safety [SIZES]        no assertion fails, and no process waits for ever
    check FORMULA [SIZES]       the formula (ltl FORMULA) holds where each process that can step does
    mutant NAME [SIZES]: FAULT  with -DNAME the model fails with FAULT: "assertion", "end state",
                                or "cycle of FORMULA"

SIZES are definitions such as N=2, in place of those of the model.

A check must visit all states. Together the checks of "safety" must reach each statement, except
those whose line has the comment "unreached: WHY". --only does one run: "safety", a formula or a mutant.
--trail prints the steps of a failure that was found.

A model's runs depend on the model alone. --record does all of them, and notes the model's SHA-256 in FILE if all
is as it should be. --known leaves out the mutants of a model whose SHA-256 is in FILE; it does all runs of a
model that has changed since.

Exit status: 0 all is as it should be, 1 it is not, 77 spin is not installed.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

MEMORY_MIB = 700
DEPTH = 300000
TIME_LIMIT_S = 600
TRAIL_LINES = 120

LINE = re.compile(r'^ \* (check|mutant) ([A-Za-z_]+)((?: [A-Z_]+=\d+)*)(?:: (.+))?$', re.MULTILINE)
FAULTS = {'assertion violated': 'assertion', 'invalid end state': 'end state',
          'acceptance cycle': 'cycle'}
STATE_LINES = re.compile(r'^short src_ln\d+ \[\] = \{(.*?)\};', re.MULTILINE | re.DOTALL)
UNREACHED = re.compile(r'^\tmodel:(\d+), state (\d+), "(.*)"$', re.MULTILINE)


def lines_of_states(folder):
    """Return the number of states of each line of a model."""
    with open(os.path.join(folder, 'pan.c'), encoding='utf-8') as file:
        found = STATE_LINES.findall(file.read())
    return collections.Counter(int(line) for lines in found for line in re.findall(r'\d+', lines))


class Run:
    """One search: a check of the model, or of a mutant."""

    def __init__(self, kind, name, sizes, fault):
        self.kind, self.name, self.sizes = kind, name, sizes
        self.defines = [f'-D{word}' for word in sizes.split()]
        if kind == 'mutant':
            self.defines.append(f'-D{name}')
        self.formula = None if name == 'safety' else name
        self.wanted = None
        if kind == 'mutant':
            self.wanted, _, self.formula = fault.partition(' of ')
        self.output = self.trail = self.problem = ''
        self.states = self.depth = self.found = '-'
        self.seconds = 0.0
        self.unreached = self.lines = None

    def call(self, command, folder):
        done = subprocess.run(command, cwd=folder, text=True, timeout=TIME_LIMIT_S, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output = done.stdout
        if done.returncode != 0:
            raise RuntimeError(f'{command[0]} failed: {done.stdout.strip()}')

    def run(self, model, options):
        begin = time.monotonic()
        try:
            self.search(model, options)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.problem = str(error)
        self.seconds = time.monotonic() - begin

    def search(self, model, options):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(model, os.path.join(folder, 'model'))
            self.call(['spin', '-a', *self.defines, 'model'], folder)
            # Compiling with optimization takes longer than it saves.
            flags = ['-w', '-O0', '-DNOBOUNDCHECK', f'-DMEMLIM={MEMORY_MIB}']
            flags += ['-DNFAIR=3'] if self.formula else ['-DSAFETY', '-DNOCLAIM']
            self.lines = lines_of_states(folder)
            self.call([*options.cc.split(), *flags, '-o', 'pan', 'pan.c'], folder)
            formula = ['-a', '-f', '-N', self.formula] if self.formula else []
            self.call(['./pan', f'-m{options.depth}', *formula], folder)
            output = self.output
            self.judge()
            has_trail = os.path.exists(os.path.join(folder, 'model.trail'))
            if has_trail and (options.trail or not self.wanted):
                self.call(['spin', *self.defines, '-t', '-p', '-g', 'model'], folder)
                self.trail = '\n'.join(self.output.split('\n')[-TRAIL_LINES:])
            self.output = output

    def judge(self):
        states = re.search(r'^ *(\d+) states, stored', self.output, re.MULTILINE)
        depth = re.search(r'depth reached (\d+), errors: (\d+)', self.output)
        if not depth or not states:
            self.problem = 'the search has no result'
            return
        self.states, self.depth = states.group(1), depth.group(1)
        faults = [fault for text, fault in FAULTS.items() if re.search(f'^pan:1: {text}', self.output,
                                                                       re.MULTILINE)]
        self.found = ' '.join(faults) or ('none' if depth.group(2) == '0' else 'another error')
        if self.wanted:
            if faults != [self.wanted]:
                self.problem = f'the mutant has to fail with "{self.wanted}"'
        elif self.found != 'none':
            self.problem = self.output.strip().split('\n', maxsplit=1)[0]
        elif 'Search not completed' in self.output or 'max search depth too small' in self.output:
            self.problem = 'the search was not completed'
        elif not self.formula:
            # An inline definition is reached where one of its calls is.
            missed = collections.Counter()
            for process in self.output.split('unreached in ')[1:]:
                missed.update(int(line) for line, _ in {(line, state) for line, state, text
                                                        in UNREACHED.findall(process)
                                                        if text != '-end-'})
            self.unreached = {line for line, n in missed.items() if n == self.lines[line]}


def unreached(model, runs):
    """Return the numbers of the lines that no check of safety reached, and that do not say why."""
    found = [run.unreached for run in runs if run.unreached is not None]
    with open(model, encoding='utf-8') as file:
        lines = file.read().split('\n')
    return sorted(number for number in (set.intersection(*found) if found else ())
                  if 'unreached:' not in lines[number - 1])


def runs_of(model):
    with open(model, encoding='utf-8') as file:
        text = file.read()
    runs = [Run(*match) for match in LINE.findall(text)]
    # A model without mutants would not show that its property can fail.
    if not any(run.kind == 'check' for run in runs) or not any(run.wanted for run in runs):
        sys.exit(f'{model}: it has no check, or no mutant')
    return runs


def line_of(model):
    """Return the line of a model in the file of known models."""
    with open(model, 'rb') as file:
        return f'{hashlib.sha256(file.read()).hexdigest()}  {os.path.basename(model)}\n'


def is_known(path, model):
    with open(path, encoding='utf-8') as file:
        return line_of(model) in file.readlines()


def record(path, model):
    """Put the model's line into the file, in place of an older one."""
    with open(path, encoding='utf-8') as file:
        lines = [line for line in file if not line.endswith(f'  {os.path.basename(model)}\n')]
    first = [line for line in lines if line.startswith('#')]
    rest = sorted([line for line in lines if line not in first] + [line_of(model)], key=lambda line: line[64:])
    with open(path, 'w', encoding='utf-8') as file:
        file.writelines(first + rest)


SMALL_MODEL = '''/*
 * check safety
 * mutant SKIP: assertion
 */
byte n;

active proctype one()
{
	byte i;

	do
	:: i < LOOPS -> i++
	:: else -> break
	od;
#ifndef SKIP
	n = 1;
#endif
	assert(n == 1)
}
'''
# changes of the model, and what is said of each
SELF_TESTS = (
    ('LOOPS', '2', ''),
    ('n = 1;', 'n = 1;\ndo\n:: n > 9 ->\nn++\n:: else -> break\nod;', 'were not reached'),
    ('n == 1', 'n < 2', 'has to fail with "assertion"'),
    ('SKIP: assertion', 'SKIP: end state', 'has to fail with "end state"'),
    ('n = 1;', 'n = 2;', 'assertion violated'),
    ('else -> break', 'false -> break', 'invalid end state'),
    ('n = 1;', 'n = 1; do :: i < 200 -> i++; n++; n-- :: else -> break od;', 'was not completed'),
)


def self_test(compiler):
    n_wrong = 0

    def check(name, said, folder, *options, **changes):
        nonlocal n_wrong
        model = os.path.join(folder, 'small.pml')
        with open(model, 'w', encoding='utf-8') as file:
            file.write(SMALL_MODEL.replace(changes.get('old', 'LOOPS'), changes.get('new', '2'))
                       .replace('LOOPS', '2'))
        done = subprocess.run([sys.executable, '-B', __file__, '--cc', compiler, *options, model],
                              text=True, check=False, stdout=subprocess.PIPE)
        if (done.returncode == 0) != (said == '') or said not in done.stdout:
            print(f'{name}: "{said}" is not said, but: {done.stdout}')
            n_wrong += 1
        return done.stdout

    for old, new, said in SELF_TESTS:
        with tempfile.TemporaryDirectory() as folder:
            depth = ['--depth', '300'] if said == 'was not completed' else []
            check(f'{old} -> {new}', said, folder, *depth, old=old, new=new)
    # Mutants that were found are left out until the model changes. What is wrong is not recorded.
    blunt = {'old': 'n == 1', 'new': 'n < 2'}
    with tempfile.TemporaryDirectory() as folder:
        known = os.path.join(folder, 'known')
        with open(known, 'w', encoding='utf-8') as file:
            file.write(f'# comment\n{"0" * 64}  other.pml\n{"1" * 64}  small.pml\n')
        check('record a blunt model', 'has to fail', folder, '--record', known, **blunt)
        if is_known(known, os.path.join(folder, 'small.pml')):
            n_wrong += 1
            print('a blunt model was recorded')
        check('record', '', folder, '--record', known)
        if 'mutant SKIP' in check('known', '', folder, '--known', known):
            n_wrong += 1
            print('a known mutant was looked for')
        check('changed since', 'has to fail', folder, '--known', known, **blunt)
        with open(known, encoding='utf-8') as file:
            names = [line.split()[1] for line in file]
        if names != ['comment', 'other.pml', 'small.pml']:
            n_wrong += 1
            print(f'the file of known models has the lines {names}')
    return 1 if n_wrong else 0


def main():
    parser = argparse.ArgumentParser()
    # Without optimization clang takes half as long as gcc.
    parser.add_argument('--cc', default='clang' if shutil.which('clang') else 'cc')
    parser.add_argument('--only')
    parser.add_argument('--trail', action='store_true')
    parser.add_argument('--known', metavar='FILE')
    parser.add_argument('--record', metavar='FILE')
    parser.add_argument('--depth', type=int, default=DEPTH)
    parser.add_argument('--self-test', action='store_true')
    parser.add_argument('model', nargs='?')
    options = parser.parse_args()
    if not shutil.which('spin'):
        print('spin is not installed (Debian package spin): the model is not checked')
        return 77
    if options.self_test:
        return self_test(options.cc)
    model = os.path.abspath(options.model)
    runs = [run for run in runs_of(model) if options.only in (None, run.name)]
    if not runs or options.only and options.record:
        sys.exit(f'{model}: it has no run {options.only}' if not runs else '--record does all runs')
    if options.known and is_known(options.known, model):
        print(f'the mutants of this model were found: {os.path.basename(options.known)}')
        runs = [run for run in runs if run.kind == 'check']

    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for future in [pool.submit(run.run, model, options)
                       for run in runs]:
            future.result()
    print(f'{os.path.basename(model):42} {"states":>9} {"depth":>7} {"seconds":>7}  found')
    for run in runs:
        found = run.found + ('  <- ' + run.problem if run.problem else '')
        print(f'{run.kind + " " + run.name + run.sizes:42} {run.states:>9} {run.depth:>7} '
              f'{run.seconds:7.1f}  {found}')
    for run in runs:
        if run.trail and (run.problem or options.trail):
            print(f'\n{run.kind} {run.name}: the last steps of the failure\n{run.trail}')
    lines = unreached(model, runs) if not options.only else []
    if lines:
        print(f'statements of these lines were not reached: {lines}')
    if lines or any(run.problem for run in runs):
        return 1
    if options.record:
        record(options.record, model)
    return 0


if __name__ == '__main__':
    sys.exit(main())
