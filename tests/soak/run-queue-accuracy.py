#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The broker's run-queue delays agree with another tool's over the same time.

    run-queue-accuracy.py RUN-QUEUE-DELAYS [SECONDS]

A thread wants a processor on which 1, 4 and 16 others compute. perf records the scheduler's tracepoints
meanwhile, in nanoseconds. The test computes the thread's waits from them: each begins when the thread
is woken or preempted, and ends when it runs. Percentiles must be within 5% of each other.

Exit status: 0; 1, they are not; 77, this machine cannot run the test, with the reason.
"""
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIP = 77
MOST = 0.05
FIELDS = re.compile(r'^\s*([0-9]+)\.([0-9]{9}):\s+sched:(\w+):\s+(.*)$')


def skip(why):
    print(f'skipped: {why}')
    sys.exit(SKIP)


def start_perf(tid, path):
    perf = subprocess.Popen(
        ['perf', 'record', '-q', '-a', '-k', 'CLOCK_MONOTONIC', '-o', path,
         '-e', 'sched:sched_switch', '--filter', f'prev_pid=={tid} || next_pid=={tid}',
         '-e', 'sched:sched_wakeup', '--filter', f'pid=={tid}'],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    # perf prints nothing when it begins; wakeups recorded before the load begins are ignored.
    time.sleep(2)
    if perf.poll() is not None:
        skip(f'perf does not record the scheduler: {perf.stderr.read().strip().splitlines()[:1]}')
    return perf


def delays_of(tid, path):
    text = subprocess.run(['perf', 'script', '--ns', '-F', 'time,event,trace', '-i', path],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
    if 'lost' in text.stderr.lower():
        sys.exit(f'run-queue-accuracy.py: perf has lost events: {text.stderr.strip()}')
    delays, since = [], None
    for line in text.stdout.splitlines():
        match = FIELDS.match(line)
        if not match:
            continue
        now = int(match.group(1)) * 1000000000 + int(match.group(2))
        event, rest = match.group(3), match.group(4)
        if event == 'sched_wakeup':
            since = since or now
        elif re.search(rf'==> .*next_pid={tid} ', rest + ' '):
            if since:
                delays.append(now - since)
            since = None
        elif re.search(r'prev_state=R', rest):
            since = now
    return sorted(delays)


def percentile(delays, percent):
    return delays[max(0, math.ceil(len(delays) * percent / 100) - 1)]


def compare(program, n_hogs, seconds):
    """Return true if the delays agree."""
    with tempfile.TemporaryDirectory(prefix='run-queue-') as folder:
        path = os.path.join(folder, 'perf.data')
        with subprocess.Popen([program, str(n_hogs), str(seconds)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            line = process.stdout.readline()
            if line.startswith('skipped: '):
                skip(line[9:].strip())
            tid = int(line.split()[1])
            perf = start_perf(tid, path)
            process.stdin.write('go\n')
            process.stdin.flush()
            words = process.stdout.readline().split()
            perf.send_signal(2)
            perf.communicate(timeout=60)
        ours = {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}
        theirs = delays_of(tid, path)
    is_right = len(theirs) > 20
    print(f'{n_hogs} hogs: {ours["n"]} delays, perf {len(theirs)}')
    for name, value in (('p50', percentile(theirs, 50)), ('p99', percentile(theirs, 99)),
                        ('max', theirs[-1])):
        apart = ours[name] / value - 1
        is_right = is_right and (abs(apart) <= MOST or name == 'max')
        print(f'  {name} {ours[name] / 1e6:.3f} ms, perf {value / 1e6:.3f} ms: {apart:+.1%}')
    return is_right


def main():
    program = os.path.abspath(sys.argv[1])
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    if not shutil.which('perf'):
        skip('perf is missing (Debian: linux-perf)')
    results = [compare(program, n_hogs, seconds) for n_hogs in (1, 4, 16)]
    sys.exit(0 if all(results) else 1)


main()
