#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Clients in name spaces of their own, with a broker outside.

    containers.py EXAMPLE BROKERD BROKERCTL FIRST_PROGRAM LIBRARY

EXAMPLE is the script of ringbroker-containers(7). A client inside appears to itself as root; the broker
identifies it by its user outside, with that user's rights. Exit status 77 if users may not make name
spaces.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from started import LIMIT, expect, start_broker

EXAMPLE, BROKERD, CTL, PROGRAM, LIBRARY = sys.argv[1:6]
NOT_PERMITTED = 4
# The administrators' socket, relative to the folder of the box.
ADMIN = 'ringbroker-admin/admin.sock'


def run(user, *command):
    """Run the command as @user; None: the current user."""
    if user is not None:
        command = ('setpriv', f'--reuid={user}', f'--regid={user}', '--clear-groups', *command)
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, check=False)


def may_make_namespaces(user):
    result = run(user, 'unshare', '--user', '--map-root-user', '--mount', '--pid', '--fork',
                 'mount', '-t', 'tmpfs', 'tmpfs', '/mnt')
    if result.returncode:
        print('users may not make name spaces here:', result.stdout.strip())
    return result.returncode == 0


class Box:
    """A folder with the files of the name space, and a broker outside of it."""

    def __init__(self, folder, policy):
        os.chmod(folder, 0o755)
        self.sockets, self.programs = (os.path.join(folder, name) for name in ('ringbroker', 'programs'))
        for path in (self.sockets, self.programs):
            os.mkdir(path, 0o755)
        for path, name in ((CTL, 'brokerctl'), (PROGRAM, 'first-program'), (LIBRARY, 'libringbroker.so.0')):
            shutil.copy(path, os.path.join(self.programs, name))
        # brokerctl needs this library if it was built with ONNX.
        onnx = os.path.join(os.path.dirname(LIBRARY), 'onnx', 'libringbroker-onnx.so.0')
        if os.path.exists(onnx):
            shutil.copy(onnx, self.programs)
        self.policy = os.path.join(folder, 'policy')
        with open(self.policy, 'w', encoding='utf-8') as file:
            file.write(policy)
        self.socket = os.path.join(self.sockets, 'brokerd.sock')
        self.log_path = os.path.join(folder, 'log')
        self.start()

    def start(self):
        self.process = start_broker(
            [BROKERD, '--gpu', 'none', '--calibration', 'none', '--cache', 'none', '--config', self.policy,
             '--socket', self.socket, '--socket-mode', '0666'], self.log_path, LIMIT)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(LIMIT) == 0, 'the broker ended with', self.process.returncode)

    def inside(self, user, *command):
        return run(user, EXAMPLE, self.sockets, self.programs, *command)


def tenants(text):
    """Return the names in the first column of the table."""
    return [line.split()[0] for line in text.split('\n')[2:] if line.strip()]


def main():
    # As root, use two users, which need not have names; else use the current user.
    users = [30001, 30002] if os.getuid() == 0 else [None]
    if not may_make_namespaces(users[0]):
        sys.exit(77)
    policy = ''.join(f'[tenant box-{i}]\nmatch-uid = {os.getuid() if user is None else user}\n'
                     for i, user in enumerate(users))
    if os.getuid() == 0:
        policy += '[tenant real-root]\nmatch-uid = 0\n'
    with tempfile.TemporaryDirectory() as folder:
        box = Box(folder, policy)
        for i, user in enumerate(users):
            result = box.inside(user, 'first-program')
            expect(result.returncode == 0 and result.stdout == '0 11 22 33 on device 0\n',
                   'the program said', result.stdout)
            # A client learns of no tenant but its own.
            result = box.inside(user, 'brokerctl', 'tenants')
            expect(result.returncode == 0 and tenants(result.stdout) == [f'box-{i}'],
                   'tenants seen inside:', result.stdout)
        # Outside, the current user may administer. Inside, the folder leads to no administrators' socket.
        for user in {*users, None}:
            result = box.inside(user, 'brokerctl', 'force-cpu', 'on')
            expect(result.returncode == NOT_PERMITTED, 'root of a container may administer:',
                   result.returncode, result.stdout)
        for path in (ADMIN, os.path.join(box.sockets, 'admin.sock')):
            result = run(None, CTL, '--admin-socket', os.path.join(folder, path), 'force-cpu', 'off')
            expect(result.returncode == 0, 'no administration outside:', path, result.stdout)
        # The folder is mounted instead of the socket, so a new socket is visible inside.
        box.stop()
        box.start()
        result = box.inside(users[0], 'first-program')
        expect(result.returncode == 0, 'after a restart the program said', result.stdout)
        box.stop()


main()
