# SPDX-License-Identifier: MIT
"""Other projects' programs, run by brokerctl exec; leaserig.py has the broker and the layer.

The fifth argument of the test, after those for leaserig.py, is BROKERCTL.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys

from leaserig import LIMIT_S, expect

CTL = os.path.abspath(sys.argv[5])


def need(program):
    if not shutil.which(program):
        print(f'skipped: {program} is not installed')
        sys.exit(77)


def environment(layers, **more):
    whole = {name: value for name, value in {**os.environ, **layers.environment()}.items()
             if not name.startswith(('RINGBROKER_', 'VK_INSTANCE', 'WAYLAND'))}
    return {**whole, 'XDG_RUNTIME_DIR': layers.folder, **more}


def run(command, layers, limit_s=LIMIT_S, **more):
    return subprocess.run(command, env=environment(layers, **more), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit_s,
                          check=False, text=True, errors='replace')


class Ended:
    """A program that has run in a lease of @vram bytes, with @options of brokerctl exec."""

    def __init__(self, broker, layers, vram, command, options=(), **more):
        report = os.path.join(layers.folder, 'report')
        done = run([CTL, '--socket', broker.socket, 'exec', f'--vram={vram}',
                    f'--report={report}', *options, '--', *command], layers, **more)
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        with open(report, encoding='utf-8') as file:
            text = file.read()
        expect(text, 'it was not run:', self.err)
        self.report = json.loads(text)
        expect(self.report['peak_credited_bytes'] <= vram, 'more than its lease', self.report)

    def expect_well(self, *what):
        expect(self.status == 0 and self.report['refused'] == 0, *what, self.status, self.report,
               self.err[-2000:])
        expect(self.report['peak_credited_bytes'] > 0, 'it drew nothing:', self.report)

    def expect_refused(self, *what):
        expect(self.report['refused'] > 0 and 'refused' in self.err, *what, self.status,
               self.report, self.err[-2000:])


@contextlib.contextmanager
def display(picture_folder=None):
    """
    Start an X server without a screen. Yields the name of its display. @picture_folder: where it keeps
    the file Xvfb_screen0, the picture.
    """
    need('Xvfb')
    ours, its = os.pipe()
    with subprocess.Popen(['Xvfb', '-displayfd', str(its), '-screen', '0', '640x480x24',
                           '-nolisten', 'tcp', '-ac', *(['-fbdir', picture_folder] if picture_folder else [])],
                          pass_fds=[its], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        os.close(its)
        try:
            with os.fdopen(ours) as file:
                number = file.readline().strip()
            expect(number, 'no X server')
            yield f':{number}'
        finally:
            server.terminate()


def half(ended):
    """Return half of the peak usage: too little for the program, but enough for each of its allocations."""
    return ended.report['peak_bytes'] // 2
