# SPDX-License-Identifier: MIT
"""long.py BUILD SECONDS OUT [NAME...]: run fuzzers for SECONDS each, and tell what they have covered.

BUILD was configured with an engine: see HACKING.md, section "Fuzzers". New inputs and crashes stay in OUT/NAME, from
which a later run goes on. OUT/NAME.new gets the fewest inputs that cover what the committed corpus does not: small
ones of these are worth to be committed.

The table has a line for each fuzzer: executions, edges of control flow that the committed corpus covers, and all
inputs cover. Below it are the functions of the same source files that no input has reached. The exit status is 1 if
a fuzzer has found something.
"""
import os
import re
import shutil
import subprocess
import sys

FUZZ = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FUZZ))
FUNCTION = re.compile(r'(UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) (\S+) (\S+?):\d+')
# Rooms below the parsers: a fuzzer does not try to reach all of them.
BESIDES = 'tests/', 'broker/util/', 'broker/loop/'
OPTIONS = ['-rss_limit_mb=4096', '-timeout=60', '-print_final_stats=1', '-verbosity=1']


def run(program, *args):
    """Run a fuzzer. Return its exit status and what it printed."""
    done = subprocess.run([program, *args], capture_output=True, text=True, errors='replace', check=False)
    return done.returncode, done.stdout + done.stderr


def coverage(program, folders):
    """Run all inputs of folders. Return the covered edges, and {(file, function): is covered}."""
    text = run(program, '-runs=0', '-print_coverage=1', *folders)[1]
    edges, functions = 0, {}
    for is_not, covered, _, function, path in FUNCTION.findall(text):
        path = os.path.relpath(path, ROOT) if os.path.isabs(path) else os.path.normpath(path.lstrip('./'))
        edges += int(covered) if not is_not else 0
        functions[path, function] = functions.get((path, function), False) or not is_not
    return edges, functions


def never_reached(functions):
    """Return 'file: function...' for each source file that is partly covered."""
    files = {}
    for (path, function), is_covered in functions.items():
        if not path.startswith(BESIDES) and not path.startswith('..'):
            files.setdefault(path, ([], []))[is_covered].append(function)
    return [f'{path}: {" ".join(sorted(missing))}' for path, (missing, reached) in sorted(files.items())
            if missing and reached]


def fuzz(build, seconds, out, name):
    """Run one fuzzer, and print its line. Return true if it has found nothing."""
    program = os.path.join(build, 'tests/fuzz/fuzz-' + name)
    corpus, found, new = os.path.join(FUZZ, 'corpus', name), os.path.join(out, name), os.path.join(out, name + '.new')
    os.makedirs(found, exist_ok=True)
    status, text = run(program, *OPTIONS, f'-max_total_time={seconds}', f'-artifact_prefix={out}/{name}-', found, corpus)
    executions = re.search(r'number_of_executed_units: +(\d+)', text)
    before, _ = coverage(program, [corpus])
    after, functions = coverage(program, [corpus, found])
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(corpus, new)
    run(program, '-merge=1', '-use_counters=0', new, found)
    for file in os.listdir(corpus):
        os.unlink(os.path.join(new, file))
    print(f'{name:16} {int(executions[1]) if executions else 0:>12,} {before:>8,} {after:>8,} '
          f'{sum(functions.values()):>6}/{len(functions)}', flush=True)
    for line in never_reached(functions):
        print('    ' + line, flush=True)
    if status:
        print(text[-8000:], flush=True)
    return status == 0


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    build, seconds, out = sys.argv[1], int(sys.argv[2]), os.path.abspath(sys.argv[3])
    names = sys.argv[4:] or sorted(os.listdir(os.path.join(FUZZ, 'corpus')))
    print(f'{"fuzzer":16} {"executions":>12} {"before":>8} {"after":>8} functions', flush=True)
    sys.exit(0 if all([fuzz(build, seconds, out, name) for name in names]) else 1)


main()
