# SPDX-License-Identifier: MIT
"""long.py BUILD SECONDS OUT [NAME[:FOLDER]...]: run fuzzers for SECONDS each, and tell what they have covered.

BUILD was configured with an engine: see HACKING.md, section "Fuzzers". New inputs and crashes stay in OUT/NAME, from
which a later run goes on. OUT/NAME.new gets the inputs that cover what the committed corpus does not: small ones of
these are worth to be committed. FOLDER has further inputs to begin with: models for onnx, for example.

The table has a line for each fuzzer: executions, and edges of control flow in the sources of its parser, those that the
committed corpus covers, those that all inputs cover, and all there are (with those of the sanitizers); then the
functions that were reached, of all. The next lines name the parser's functions that no input has reached: some cannot
be reached by this fuzzer, and small ones were reached where the compiler has inlined them. The exit status is 1 if a
fuzzer has found something.
"""
import json
import os
import re
import shutil
import subprocess
import sys

FUZZ = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FUZZ))
FUNCTION = re.compile(r'(UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) (\S+) (\S+?):\d+')
# The beginnings of the paths of each parser's sources.
PARSERS = {
    'admin-request': ('broker/session/request.c', 'broker/session/session-admin.c'),
    'client-reply': ('libclient/reply.c',),
    'entry': ('broker/dispatch/validate-hot.c', 'broker/dispatch/refused.c', 'shm/sqe-check.c'),
    'fdinfo': ('broker/telemetry/fdinfo.c',),
    'metrics-accept': ('broker/control/metrics-text.c',),
    'npy': ('tools/arrays/npy.c',),
    'onnx': ('libclient/onnx/',),
    'pages': ('tools/brokertop/', 'tools/monitor/'),
    'plan': ('broker/plan/', 'shm/operators/'),
    'policy': ('broker/tenant/policy',),
    'profile': ('broker/calibrate/profile-file.c',),
    'request': ('broker/session/', 'broker/lease/'),
    'run-queue-proc': ('broker/util/proc.c',),
    'saved': ('broker/place/saved.c',),
}
OPTIONS = ['-rss_limit_mb=4096', '-timeout=60', '-print_final_stats=1', '-verbosity=1']


def program_of(build, name):
    return os.path.join(build, 'tests/fuzz/fuzz-' + name)


def run(program, *args):
    """Run a fuzzer. Return its exit status and what it printed."""
    done = subprocess.run([program, *args], capture_output=True, text=True, errors='replace', check=False)
    return done.returncode, done.stdout + done.stderr


def coverage(program, folders, parser):
    """Run all inputs of folders. Return covered edges of the parser, all edges, and {file: {function: is covered}}."""
    text = run(program, '-runs=0', '-print_coverage=1', *folders)[1]
    covered, total, functions = 0, 0, {}
    for is_not, reached, edges, function, path in FUNCTION.findall(text):
        path = os.path.relpath(path, ROOT)
        if not path.startswith(parser):
            continue
        covered += int(reached) if not is_not else 0
        total += int(edges)
        # A function of a header has a copy in each object.
        of_file = functions.setdefault(path, {})
        of_file[function] = of_file.get(function, False) or not is_not
    return covered, total, functions


def fuzz(build, seconds, out, name):
    """Run one fuzzer, and print its line. Return true if it has found nothing."""
    name, *further = name.split(':')
    program = program_of(build, name)
    corpus, found, new = os.path.join(FUZZ, 'corpus', name), os.path.join(out, name), os.path.join(out, name + '.new')
    os.makedirs(found, exist_ok=True)
    status, text = run(program, *OPTIONS, f'-max_total_time={seconds}', f'-artifact_prefix={out}/{name}-',
                       found, corpus, *further)
    executions = re.search(r'number_of_executed_units: +(\d+)', text)
    before = coverage(program, [corpus], PARSERS[name])[0]
    after, total, functions = coverage(program, [corpus, found, *further], PARSERS[name])
    reached = [is_reached for of_file in functions.values() for is_reached in of_file.values()]
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(corpus, new)
    run(program, '-merge=1', '-use_counters=0', new, found, *further)
    for file in os.listdir(corpus):
        os.unlink(os.path.join(new, file))
    print(f'{name:16} {int(executions[1]) if executions else 0:>12,} {before:>7,} {after:>7,} {total:>7,} '
          f'{sum(reached):>9}/{len(reached)}', flush=True)
    for path, of_file in sorted(functions.items()):
        missing = sorted(function for function, is_reached in of_file.items() if not is_reached)
        if missing:
            print(f'    {path}: {" ".join(missing)}', flush=True)
    if status:
        print(text[-8000:], flush=True)
    return status == 0


def refuse(why):
    print(f'long.py: {why}; see long.py --help', file=sys.stderr)
    sys.exit(2)


def engine(build):
    """Return the option fuzz_engine of a build folder, empty if the fuzzers only repeat their corpora."""
    try:
        with open(os.path.join(build, 'meson-info/intro-buildoptions.json'), encoding='utf-8') as file:
            return {option['name']: option['value'] for option in json.load(file)}.get('fuzz_engine', '')
    except OSError as error:
        refuse(f'{build} is no build folder ({error.strerror})')


def check(build, seconds, names):
    """End, with a sentence, where the arguments are wrong."""
    if not seconds.isascii() or not seconds.isdigit() or int(seconds) < 1:
        refuse(f'SECONDS is a number of at least 1, not {seconds}')
    if not engine(build):
        refuse(f'the fuzzers of {build} have no engine, which -Dfuzz_engine=-fsanitize=fuzzer gives them (HACKING.md)')
    for name, *folders in (name.split(':') for name in names):
        if name not in PARSERS:
            refuse(f'there is no fuzzer {name}, but {", ".join(sorted(PARSERS))}')
        if not os.path.exists(program_of(build, name)):
            refuse(f'there is no {program_of(build, name)}: build it first')
        for folder in folders:
            if not os.path.isdir(folder):
                refuse(f'{folder} is no folder')


def main():
    if sys.argv[1:] in (['--help'], ['-h']):
        print(__doc__)
        return
    if len(sys.argv) < 4:
        refuse('it takes BUILD SECONDS OUT [NAME[:FOLDER]...]')
    build, seconds, out = sys.argv[1], sys.argv[2], os.path.abspath(sys.argv[3])
    names = sys.argv[4:] or sorted(PARSERS)
    check(build, seconds, names)
    print(f'{"fuzzer":16} {"executions":>12} {"before":>7} {"after":>7} {"edges":>7} {"functions":>9}', flush=True)
    sys.exit(0 if all([fuzz(build, int(seconds), out, name) for name in names]) else 1)


main()
