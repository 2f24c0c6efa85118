# SPDX-License-Identifier: MIT
"""Rig of the demo's tests: run tools/demo and find the processes that it leaves."""
import os
import re
import signal
import subprocess
import sys
import time

from started import start


def fail(text, output=''):
    print(f'{text}\n{output}')
    sys.exit(1)


def demo(source, build, scratch, *options):
    return start(
        [os.path.join(source, 'tools/demo'), '--build', build, *options],
        env=dict(os.environ, TMPDIR=scratch), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True)


def finish(process):
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


def processes_of(scratch):
    """Return the processes whose command line matches."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as file:
                if re.search(scratch, file.read()):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def expect_clean(scratch):
    left = processes_of(re.escape(scratch))
    if left or os.listdir(scratch):
        fail(f'left behind: processes {left}, files {os.listdir(scratch)}')


def await_processes(process, pattern, n):
    """Return true if n processes match before the demo ends."""
    deadline = time.monotonic() + 120
    while len([p for p in processes_of(pattern) if p != process.pid]) < n:
        if process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            process.kill()
            fail('the demo starts no client', finish(process)[1])
        time.sleep(0.02)
    return True


def expect_stopped(process, number, scratch):
    os.kill(process.pid, number)
    status, output = finish(process)
    if status != 128 + number:
        fail(f'stopped by signal {number}: status {status}', output)
    expect_clean(scratch)


def expect_refused(source, build, scratch, *options):
    """Expect status 2 and one line with the reason."""
    status, output = finish(demo(source, build, scratch, *options))
    if status != 2 or output.count('\n') != 1:
        fail(f'{options}: status {status}, expected 2 and one line', output)
