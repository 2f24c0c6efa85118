#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run "tools/demo time", and stop it in the middle.

    demo-time.py SOURCE BUILD

The demo judges the figures itself: its status is 0 only if they are as expected. Exit status: 77 without a driver for the
simulated card.
"""
import re
import signal
import sys
import tempfile

from demorun import await_processes, demo, expect_clean, expect_refused, expect_stopped, fail, finish, processes_of

SOURCE, BUILD = sys.argv[1:]
ROWS = ('sharing off', 'sharing on, command buffers whole', 'sharing on, parts of 500 us (default)',
        'sharing on, parts of 200 us')
PROGRAMS = '^' + re.escape(BUILD) + r'/tests/(support/submit-client|integration/model-client)\0'


def main():
    with tempfile.TemporaryDirectory() as scratch:
        expect_refused(SOURCE, BUILD, scratch, 'time', '--images', '5')
        expect_refused(SOURCE, BUILD, scratch, 'time', '--seconds', '0')
        expect_refused(SOURCE, BUILD, scratch, 'placement', '--seconds', '1')
        status, output = finish(demo(SOURCE, BUILD, scratch, 'time', '--seconds=1'))
        expect_clean(scratch)
        print(output)
        if status:
            sys.exit(77 if status == 77 else 1)
        rows = re.findall(r'^(sharing .*?) +\d+\.\d +\d+\.\d +\d+% +\d+ +\d+%$', output, re.MULTILINE)
        if tuple(rows) != ROWS or 'The card is simulated' not in output:
            fail(f'rows: {rows}')
        process = demo(SOURCE, BUILD, scratch, 'time')
        # Both Vulkan programs, whose command lines do not name the folder, and the ring client
        if not await_processes(process, PROGRAMS, 3):
            fail('the programs were never seen', finish(process)[1])
        expect_stopped(process, signal.SIGTERM, scratch)
        if processes_of(PROGRAMS):
            fail(f'left behind: {processes_of(PROGRAMS)}')



main()
