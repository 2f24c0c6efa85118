#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Mutants: bugs that faultsim must find, and wrong decisions that decisions must find.

mutants.txt lists them. Each is planted in a copy of the sources, alone; faultsim is built from the copy and runs from
seed 1 until it finds a violation. The time that counts is that of the processor, so other programs do not matter. For
mutants whose names begin with "decide-" it is decisions, which runs once.

  mutants.py --check           check that every mutant of the list applies to the sources
  mutants.py FOLDER [NAME]...  look for these mutants, or for all; FOLDER, a build folder of its own, is kept for the
                               next time

Exit status: 0: at least 95% are found, and nothing without a mutant; 1: they are not, or a mutant does not apply or
build.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / 'mutants.txt'
FOLDER = pathlib.Path('tests/simulator')
GOAL = 0.95

Mutant = collections.namedtuple('Mutant', 'name file about patch')
Outcome = collections.namedtuple('Outcome', 'is_found seconds seed text')


class Fault(Exception):
    """The list or the build is wrong."""


def read_list(path):
    """Read the list of mutants."""
    mutants = []
    text = re.sub(r'^#.*\n', '', path.read_text(), flags=re.M)
    for entry in re.split(r'^\[', text, flags=re.M)[1:]:
        head, *lines = entry.rstrip().split('\n')
        match = re.fullmatch(r'(\S+\.[ch]): (.+\.)', lines[0])
        if not match:
            raise Fault(f'{head}: the second line is not "FILE: SENTENCE."')
        for line in lines[1:]:
            if line and line[:2] not in ('- ', '+ ', '  ') and line not in ('-', '+'):
                raise Fault(f'{head}: not a line of a patch: {line}')
        mutants.append(Mutant(head.rstrip(']'), match[1], match[2], lines[1:]))
    names = [mutant.name for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            raise Fault(f'{name}: there are two of this name')
    return mutants


def apply(mutant, source):
    """Return @source with the mutant in it."""
    old = [line[1:].strip() for line in mutant.patch if line[:1] != '+']
    new = [line[1:].strip() for line in mutant.patch if line[:1] != '-']
    lines = source.split('\n')
    stripped = [line.strip() for line in lines]
    places = [i for i in range(len(lines)) if stripped[i:i + len(old)] == old]
    if len(places) != 1 or not old:
        raise Fault(f'{mutant.name}: its old lines occur {len(places)} times in {mutant.file}')
    at = places[0]
    return '\n'.join(lines[:at] + new + lines[at + len(old):])


def program_name(mutant):
    """Return the name of the program that must find a mutant."""
    return 'decisions' if mutant and mutant.name.startswith('decide-') else 'faultsim'


def copy_sources(folder):
    """Copy the sources to @folder, but no file that is the same there already."""
    names = subprocess.run(['git', '-C', ROOT, 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
                           check=True, capture_output=True, text=True).stdout.split('\0')
    for name in filter(None, names):
        source, target = ROOT / name, folder / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)


class Builder:
    """A copy of the sources, and its build folder."""

    def __init__(self, folder):
        self.source, self.build, self.programs = folder / 'source', folder / 'build', folder / 'programs'
        self.source.mkdir(parents=True, exist_ok=True)
        self.programs.mkdir(exist_ok=True)
        copy_sources(self.source)
        if not (self.build / 'build.ninja').is_file():
            subprocess.run(['meson', 'setup', '-Db_pch=false', '-Doptimization=1', self.build, self.source], check=True,
                           stdout=subprocess.DEVNULL)

    def program(self, mutant):
        """Build the program for @mutant (None: faultsim without one). Return: its path."""
        target = FOLDER / program_name(mutant)
        program = self.programs / (mutant.name if mutant else 'none')
        if mutant:
            path = self.source / mutant.file
            before = path.read_text()
            path.write_text(apply(mutant, before))
        try:
            result = subprocess.run(['ninja', '-C', self.build, target], check=False, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
        finally:
            if mutant:
                path.write_text(before)
        if result.returncode:
            errors = '\n'.join(re.findall(r'.*(?:error|not found).*', result.stdout)[:5])
            raise Fault(f'{mutant.name if mutant else "faultsim"} does not build:\n{errors}')
        program.unlink(missing_ok=True)  # A program that still runs keeps its file.
        shutil.copyfile(self.build / target, program)
        program.chmod(0o755)
        return program


def processor_seconds(pid):
    """Return the time that a running process and its ended children have used."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf('SC_CLK_TCK')


def sentence(lines):
    """Find the sentence in what faultsim said: it is above the line with the step and the seed."""
    for i, line in enumerate(lines):
        if line.startswith('violation at step') and i > 0:
            return re.sub(r'^ *[\d.]+ ', '', lines[i - 1])
        if 'Assertion' in line or line.startswith('the round was ended by'):
            return line.strip()
    return '?'


def look_for(program, is_endless, seconds, seed):
    """Run a program until it finds a violation, has used @seconds of a processor, or ends unless it @is_endless."""
    options = [f'--seed={seed}', '--seconds=100000', '--first'] if is_endless else []
    with tempfile.TemporaryFile('w+', errors='replace') as said:
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=said)
        is_over = False
        # The process is waited for here, to learn the time that it has used. The object must live as long: Python
        # waits for processes whose object is gone, in any thread.
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if not is_over and processor_seconds(process.pid) >= seconds:
                is_over = True
                os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.1)
        process.returncode = ended[1]
        said.seek(0)
        lines = said.read().split('\n')
    used = ended[2].ru_utime + ended[2].ru_stime
    if is_over or ended[1] == 0:
        return Outcome(False, used, None, '')
    found = re.search(r'--seed=(\d+)', '\n'.join(lines))
    return Outcome(True, used, int(found[1]) if found else None, sentence(lines))


def parse():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', nargs='?', type=pathlib.Path, metavar='FOLDER')
    parser.add_argument('--check', action='store_true')
    parser.add_argument('names', nargs='*', metavar='NAME')
    parser.add_argument('--seconds', type=float, default=60, help='of a processor, for each mutant (default: 60)')
    parser.add_argument('--seed', type=int, default=1, help='the first seed (default: 1)')
    parser.add_argument('--jobs', type=int, default=os.cpu_count(), help='programs that run at once')
    options = parser.parse_args()
    if not options.check and not options.folder:
        parser.error('FOLDER is missing')
    return options


def check(mutants):
    """Apply each mutant in memory. Return: the exit status."""
    status = 0
    for mutant in mutants:
        try:
            if apply(mutant, (ROOT / mutant.file).read_text()) == (ROOT / mutant.file).read_text():
                raise Fault(f'{mutant.name}: it changes nothing')
        except (Fault, OSError) as fault:
            print(f'mutants.txt: {fault}')
            status = 1
    print(f'{len(mutants)} mutants')
    return status


def report(mutant, outcome):
    """Print a line of the table."""
    name = mutant.name if mutant else '(none)'
    if outcome.is_found:
        seed = '' if outcome.seed is None else f', seed {outcome.seed}'
        print(f'{name:36} {outcome.seconds:5.1f} s{seed}: {outcome.text}', flush=True)
    else:
        print(f'{name:36} {"MISSED" if mutant else "nothing is found"} ({outcome.seconds:.1f} s)', flush=True)


def run(mutants, options):
    """Look for the mutants. Return: the exit status."""
    builder = Builder(options.folder.resolve())
    futures, faults = {}, []

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant in mutants if options.names else [None] + mutants:
            try:
                program = builder.program(mutant)
            except Fault as fault:
                faults.append(str(fault))
                print(fault, flush=True)
                continue
            future = pool.submit(look_for, program, program_name(mutant) == 'faultsim', options.seconds, options.seed)
            futures[future] = mutant
            future.add_done_callback(lambda done: report(futures[done], done.result()))
    outcomes = [(mutant, future.result().is_found) for future, mutant in futures.items()]
    is_sound = (None, True) not in outcomes
    outcomes = [(mutant, is_found) for mutant, is_found in outcomes if mutant]
    missed = [mutant for mutant, is_found in outcomes if not is_found]
    n_found = len(outcomes) - len(missed)
    print(f'{len(outcomes)} mutants, {n_found} found ({100 * n_found / max(len(outcomes), 1):.1f}%) within '
          f'{options.seconds:g} s of a processor each, {len(faults)} faulty; missed:',
          ', '.join(mutant.name for mutant in missed) or 'none')
    if not is_sound:
        print('there is a violation without a mutant')
    return int(not is_sound or bool(faults) or len(missed) > (1 - GOAL) * len(outcomes))


def main():
    """Check the list, or look for the mutants."""
    options = parse()
    try:
        mutants = read_list(LIST)
    except Fault as fault:
        print(f'mutants.txt: {fault}')
        return 1
    unknown = set(options.names) - {mutant.name for mutant in mutants}
    if unknown:
        print('not in mutants.txt:', ', '.join(sorted(unknown)))
        return 1
    if options.names:
        mutants = [mutant for mutant in mutants if mutant.name in options.names]
    return check(mutants) if options.check else run(mutants, options)


if __name__ == '__main__':
    sys.exit(main())
