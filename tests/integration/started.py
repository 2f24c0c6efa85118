# SPDX-License-Identifier: MIT
"""Shared functions of tests: time limits, and processes of which none outlives the test, however it
ends."""
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# A shell makes background programs ignore SIGINT, and the processes started here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
_started = []
_watches_all = False
# seconds that a step of a test may take
LIMIT = 60 * int(os.environ.get('RBK_TEST_SLOW', '1'))


def expect(condition, *what):
    if not condition:
        print(os.path.basename(sys.argv[0]) + ':', *what)
        sys.exit(1)


def pause(begin, least_s):
    """Wait before the next look at a condition, whose last one began at @begin. A look that starts a program leaves
    the processor to others for longer than it takes."""
    time.sleep(max(least_s, min(2 * (time.monotonic() - begin), 0.1)))


def wait_for(condition, *what):
    """Wait until condition() returns a true value, and return it. @what, which may be functions,
    describes the failure."""
    begin = time.monotonic()
    end = begin + LIMIT
    while not (result := condition()):
        if time.monotonic() > end:
            expect(False, *(text() if callable(text) else text for text in what))
        pause(begin, 0.02)
        begin = time.monotonic()
    return result


def start(command, **options):
    """Start a process with the arguments of subprocess.Popen(). The process ends with the test."""
    process = subprocess.Popen(command, **options)
    _started.append(process)
    return process


def await_listening(process, log_path, limit_s):
    """Wait until brokerd logs that it listens, a little after its socket appears; else end the test."""
    end = time.monotonic() + limit_s
    while True:
        has_ended = process.poll() is not None
        with open(log_path, encoding='utf-8', errors='replace') as log:
            said = log.read()
        if 'listening on' in said:
            return
        if has_ended or time.monotonic() > end:
            print('brokerd', 'has ended:' if has_ended else 'does not listen:', said)
            sys.exit(1)
        time.sleep(0.02)


def watch_all():
    """Have all brokers watch contention for processors; see broker_watch_all() in harness.h."""
    global _watches_all
    _watches_all = True


def _watched(command):
    """Return the command, with --contention=none where broker_start() in harness.c would have it."""
    names = [os.path.basename(word) for word in command]
    if _watches_all or 'brokerd' not in names or \
            any(word.startswith('--contention') for word in command):
        return command
    # Before other options, and after a program that starts brokerd.
    first = names.index('brokerd') + 1
    return [*command[:first], '--contention=none', *command[first:]]


def start_broker(command, log_path, limit_s, **options):
    """Start brokerd and wait until it listens; its log is at log_path. Return: its process."""
    with open(log_path, 'wb') as log:
        process = start(_watched(command), stderr=log, **options)
    await_listening(process, log_path, limit_s)
    return process


class Broker:
    """A brokerd of its own that listens, in a folder with its socket, log and policy file.

    @policy: text of the latter. @options: of Popen(). As a context manager it ends well, without a
    system call that its sandbox has refused, and shows its log if the test does not.
    """
    foreign_calls = frozenset()  # calls of what a test adds to the broker's process

    def __init__(self, *command, policy='', uid=None, **options):
        self.folder = tempfile.mkdtemp(prefix='rbk-test-')
        self.socket, self.log_path, self.config = (
            os.path.join(self.folder, name) for name in ('socket', 'log', 'brokerd.conf'))
        os.chmod(self.folder, 0o755)
        if uid is not None:
            os.chown(self.folder, uid, uid)
            options |= {'user': uid, 'group': uid, 'extra_groups': []}
        self.write(policy)
        self.arguments = [command[0], '--socket', self.socket, '--config', self.config, *command[1:]]
        self.options = options
        self.start()

    def start(self):
        self.process = start_broker(self.arguments, self.log_path, LIMIT, **self.options)
        self.pid = self.process.pid
        self.has_been_ended = False

    def write(self, policy):
        with open(self.config, 'w', encoding='utf-8') as file:
            file.write(policy)

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def says(self, text):
        return text in self.log()

    def n_says(self, text):
        return self.log().count(text)

    def skip_unless(self, text):
        """End the test as skipped if the broker's log does not contain @text."""
        if not self.says(text):
            print(f'skipped: no "{text}":\n{self.log()}')
            self.end()
            shutil.rmtree(self.folder)
            sys.exit(77)

    def end(self, how=signal.SIGTERM):
        """Stop the broker. Return: its status."""
        self.process.send_signal(how)
        self.has_been_ended = True
        return self.process.wait(LIMIT)

    def __enter__(self):
        return self

    def refused_calls(self):
        return set(re.findall('the system call ([^ ]+) of', self.log())) - self.foreign_calls

    def __exit__(self, *error):
        status = 0 if self.has_been_ended else self.end()
        refused = self.refused_calls()
        if error[0] or status or refused:
            print(self.log()[-4000:])
        shutil.rmtree(self.folder)
        expect(error[0] or status == 0, 'brokerd ended with', status)
        expect(error[0] or not refused, 'system calls were refused:', refused)


@atexit.register
def _end():
    for process in _started:
        if process.poll() is None:
            process.kill()
            process.wait()
