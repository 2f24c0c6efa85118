#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs tools/demo over a few images, and stops one in the middle.

    demo.py SOURCE BUILD N_IMAGES RIGHT RIGHT_NEAREST

The demo compares every neighbour that a device found with those of exact integer arithmetic; it
must find all of them, on the CPU and on Vulkan, and RIGHT of the images right (RIGHT_NEAREST by the
nearest neighbour alone). Stopped in the middle, it leaves no process and no file. Exit status 77
where the images are missing.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time


def fail(text, output=''):
    print(f'{text}\n{output}')
    sys.exit(1)


def demo(source, build, scratch, *options):
    return subprocess.Popen(
        [os.path.join(source, 'tools/demo'), '--build', build, *options],
        env=dict(os.environ, TMPDIR=scratch), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True)


def finish(process):
    output, _ = process.communicate(timeout=600)
    return process.returncode, output


def processes_of(scratch):
    """Processes whose command line names the folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as file:
                if scratch in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def expect_clean(scratch):
    left = processes_of(scratch)
    if left or os.listdir(scratch):
        fail(f'left behind: processes {left}, files {os.listdir(scratch)}')


def cells(output, row):
    for line in output.split('\n'):
        if line.startswith(row + '  '):
            return [cell.split('(')[0].strip() for cell in line[28:].split('  ') if cell.strip()]
    return fail(f'the table has no row "{row}"', output)


def check_result(source, build, scratch, n_images, right, right_nearest):
    status, output = finish(demo(source, build, scratch, '--images', n_images))
    if status == 77:
        print(output.strip())
        sys.exit(77)
    if status:
        fail(f'status {status}', output)
    n_columns = 2 if 'No Vulkan device was found' in output else 3
    for row, expected in (('right', right), ('right by the nearest alone', right_nearest)):
        if cells(output, row) != [expected] * n_columns:
            fail(f'{row}: expected {expected} in {n_columns} columns', output)
    if f'all {int(n_images) * 5} neighbours are the same' not in output:
        fail('the neighbours differ', output)
    print(output)
    expect_clean(scratch)


def check_stopping(source, build, scratch):
    for number in (signal.SIGTERM, signal.SIGINT):
        process = demo(source, build, scratch, '--images', '10000')
        # The clients have been started when they connect or compute; stop while they do.
        deadline = time.monotonic() + 60
        while len([p for p in processes_of(scratch) if p != process.pid]) < 2:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                fail('the demo starts no client', finish(process)[1])
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(process.pid, number)
        status, output = finish(process)
        if status != 128 + number:
            fail(f'stopped by signal {number}: status {status}', output)
        expect_clean(scratch)


def check_refusals(source, build, scratch):
    for options in (('--unknown',), ('--images', '0'), ('--images', '10001'), ('--images', 'x'),
                    ('--images',)):
        status, output = finish(demo(source, build, scratch, *options))
        if status != 2 or output.count('\n') != 1:
            fail(f'{options}: status {status}, expected 2 and one line', output)


def main():
    source, build, n_images, right, right_nearest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        check_refusals(source, build, scratch)
        check_result(source, build, scratch, n_images, right, right_nearest)
        check_stopping(source, build, scratch)


main()
