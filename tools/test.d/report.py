#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tools/test makes of meson's records of test runs.

  report.py again LOG            prints the tests that deserve a second try, alone, a line each:
                                 at most six failed, each by an assertion or its time limit
  report.py sum N_BUILDS LOG...  what was skipped and failed, and "N passed, N failed, N skipped";
                                 N_BUILDS builds failed. Of a LOG the record of the second tries
                                 lies beside it, where there were any: "again-" before its name.
  report.py --self-test

A second try is for tests that share two processors with other tests, and lost theirs at a bad
time. It is never given to what a sanitizer reported or to a program that crashed, brokerd among
them: once is enough for those. What passes at the second try is named, so that nobody need guess.
"""

import json
import os
import re
import sys
import tempfile

MAX_AGAIN = 6
# abort() in cmocka and in the harness is an assertion; these patterns are findings. A leak alone, also one of
# threads, is a finding; after a failed assertion the test may have left memory and threads behind.
FINDING = re.compile(r'ERROR: AddressSanitizer|WARNING: ThreadSanitizer: (?!thread leak)|runtime error:|'
                     r'ERROR: ThreadSanitizer|VUID-|SIG(SEGV|BUS|ILL|TRAP|FPE|SYS)|'
                     r'core dumped|brokerd has died|Sanitizer:DEADLYSIGNAL')
LEAK = re.compile(r'ERROR: LeakSanitizer|WARNING: ThreadSanitizer: thread leak')
ASSERTION = re.compile(r'\[ *FAILED *\]|^not ok|AssertionError|^FAIL', re.MULTILINE)
CRASHES = (-11, -7, -4, -5, -8, -31, 139, 135, 132, 133, 136, 159)


def tests_of(path):
    """Yield each test's name without suites, and its record."""
    with open(path, encoding='utf-8') as file:
        for line in file:
            test = json.loads(line)
            yield test['name'].split(' / ')[-1], test


def is_failed(test):
    return test['result'] not in ('OK', 'EXPECTEDFAIL', 'SKIP')


def deserves_again(test):
    said = (test.get('stdout') or '') + (test.get('stderr') or '')
    if FINDING.search(said) or test.get('returncode') in CRASHES:
        return False
    if LEAK.search(said) and not ASSERTION.search(said):
        return False
    return test['result'] in ('FAIL', 'TIMEOUT')


def again(path):
    if not os.path.exists(path):
        return []
    failed = [(name, test) for name, test in tests_of(path) if is_failed(test)]
    if len(failed) > MAX_AGAIN or not all(deserves_again(test) for _, test in failed):
        return []
    return sorted({name for name, _ in failed})


def summarize(n_builds_failed, paths):
    """Return the lines to print, and whether all is well."""
    passed, failed, skipped = 0, n_builds_failed, 0
    lines = []
    for path in paths:
        where = os.path.basename(os.path.dirname(os.path.dirname(path)))
        if not os.path.exists(path):
            lines.append(f'{where}: no test was run')
            failed += 1
            continue
        beside = os.path.join(os.path.dirname(path), 'again-' + os.path.basename(path))
        second = {}
        if os.path.exists(beside):
            second = {test['name']: test['result'] for _, test in tests_of(beside)}
        for name, test in tests_of(path):
            if is_failed(test) and second.get(test['name']) == 'OK':
                passed += 1
                lines.append(f'failed, but passed alone: {name} ({where}): {test["result"]}')
            elif is_failed(test):
                failed += 1
                lines.append(f'failed: {name} ({where}): {test["result"]}')
            elif test['result'] == 'SKIP':
                skipped += 1
                said = (test.get('stdout') or test.get('stderr') or '').strip().split('\n')[-1]
                lines.append(f'skipped: {name} ({where}): {said or "no reason given"}')
            else:
                passed += 1
    lines.append(f'{passed} passed, {failed} failed, {skipped} skipped')
    return lines, failed == 0 and passed > 0


def self_test():
    def record(name, result, said='', code=1):
        return {'name': f'ringbroker:suite / {name}', 'result': result, 'stdout': said,
                'returncode': code}

    fine = record('fine', 'OK', code=0)
    asserted = record('asserted', 'FAIL', '[  FAILED  ] test_x')
    late = record('late', 'TIMEOUT')
    crashed = record('crashed', 'FAIL', code=-11)
    trapped = record('trapped', 'FAIL', '[  FAILED  ] x\nERROR: AddressSanitizer: ILL on unknown address')
    stopped = record('stopped', 'FAIL', '[  FAILED  ] x', -5)
    raced = record('raced', 'FAIL', '[  FAILED  ] x\nWARNING: ThreadSanitizer: data race')
    leaked = record('leaked', 'FAIL', 'ERROR: LeakSanitizer: detected memory leaks')
    left = record('left', 'FAIL', '[  FAILED  ] x\nERROR: LeakSanitizer: detected', code=-6)
    threads = record('threads', 'FAIL', 'WARNING: ThreadSanitizer: thread leak', 66)
    joined = record('joined', 'FAIL', '[  FAILED  ] x\nWARNING: ThreadSanitizer: thread leak', 66)
    cases = [([fine], []), ([fine, asserted, late], ['asserted', 'late']), ([crashed], []),
             ([trapped], []), ([stopped], []),
             ([raced], []), ([leaked], []), ([left], ['left']), ([threads], []),
             ([joined], ['joined']),
             # A finding, or too many failures: no test is run again.
             ([asserted, raced], []), ([asserted] * (MAX_AGAIN + 1), [])]
    with tempfile.TemporaryDirectory() as folder:
        logs = os.path.join(folder, 'build', 'meson-logs')
        path = os.path.join(logs, 'testlog-default.json')
        beside = os.path.join(logs, 'again-testlog-default.json')

        def write(where, tests):
            with open(where, 'w', encoding='utf-8') as file:
                file.writelines(json.dumps(test) + '\n' for test in tests)

        os.makedirs(logs)
        for tests, expected in cases:
            write(path, tests)
            if again(path) != expected:
                return f'again {[test["name"] for test in tests]}: {again(path)}'
        write(path, [fine, asserted, late, record('none', 'SKIP', 'no GPU', 77)])
        lines, is_well = summarize(0, [path])
        if is_well or lines[-1] != '1 passed, 2 failed, 1 skipped':
            return str(lines)
        write(beside, [record('asserted', 'OK', code=0), late])
        lines, is_well = summarize(0, [path])
        if is_well or lines[-1] != '2 passed, 1 failed, 1 skipped' or \
           'failed, but passed alone: asserted (build): FAIL' not in lines:
            return str(lines)
        write(beside, [record('asserted', 'OK', code=0), record('late', 'OK', code=0)])
        if summarize(0, [path]) != (summarize(0, [path])[0], True) or summarize(1, [path])[1] or \
           summarize(0, [path, path + '.missing'])[1]:
            return 'whether all is well'
        # One name in two suites: a test does not pass because its namesake does.
        namesake = {**asserted, 'name': 'ringbroker:other / asserted'}
        write(path, [fine, asserted])
        write(beside, [asserted, {**namesake, 'result': 'OK'}])
        if summarize(0, [path])[1]:
            return 'namesakes'
        os.remove(beside)
        write(path, [])
        if summarize(0, [path])[1]:
            return 'no test at all is not well'
    return None


def main():
    if sys.argv[1:] == ['--self-test']:
        wrong = self_test()
        if wrong:
            sys.exit(f'report.py: {wrong}')
    elif len(sys.argv) == 3 and sys.argv[1] == 'again':
        print('\n'.join(again(sys.argv[2])))
    elif len(sys.argv) > 2 and sys.argv[1] == 'sum':
        lines, is_well = summarize(int(sys.argv[2]), sys.argv[3:])
        print('\n'.join(lines))
        sys.exit(0 if is_well else 1)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
