#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs with more rights than their caller (by a file capability, or as another user): where their
loader looks for the layer, and which variables they trust. The test needs root, and a mount namespace
of its own.

    lease-secure.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER BROKERCTL
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

SELF = [sys.executable, '-B', os.path.abspath(__file__), *sys.argv[1:]]
INSIDE = 'RBK_TEST_NAMESPACE'
if os.getuid() != 0 or not shutil.which('setcap'):
    print('not root, or no setcap: skipped')
    sys.exit(77)
if INSIDE not in os.environ:
    if subprocess.run(['unshare', '--mount', 'true'], check=False).returncode != 0:
        print('no mount namespaces here: skipped')
        sys.exit(77)
    os.environ[INSIDE] = '1'
    os.execvp('unshare', ['unshare', '--mount', *SELF])

from leaserig import (CLIENT, INITIALIZATION_FAILED, MANIFEST, MIB, OK, OUT_OF_DEVICE_MEMORY,
                      Broker, Client, Layers, expect, icd_of)

CTL = os.path.abspath(sys.argv[5])
NOBODY, DAEMON = 65534, 1
AS_NOBODY = ['setpriv', '--reuid', str(NOBODY), '--regid', str(NOBODY), '--clear-groups', '--']
SYSTEM_SOCKET = '/run/ringbroker/brokerd.sock'
VULKAN = '/usr/share/vulkan'
# The environment is not trusted: the socket does not exist, and the log would be overwritten.
LEASE = {'RINGBROKER_LEASE_VRAM': '64MiB', 'RINGBROKER_SOCKET': '/nonexistent'}


class Place:
    """The programs and the layer, in a folder that all users may read."""

    def __init__(self, folder):
        os.chmod(folder, 0o755)
        self.plain, self.capable, self.setuid = [
            shutil.copy(CLIENT, os.path.join(folder, name))
            for name in ('plain', 'capable', 'setuid')]
        subprocess.run(['setcap', 'cap_sys_nice+ep', self.capable], check=True)
        os.chown(self.setuid, DAEMON, DAEMON)
        os.chmod(self.setuid, 0o4755)
        with open(MANIFEST, encoding='utf-8') as file:
            self.manifest = json.load(file)
        layer = self.manifest['layer']
        layer['library_path'] = shutil.copy(layer['library_path'], folder)
        # A copy of the system's folder, with the software driver only, whatever the environment says.
        self.vulkan = os.path.join(folder, 'vulkan')
        shutil.copytree(VULKAN, self.vulkan, ignore=lambda path, names: [
            name for name in names if path.endswith('icd.d') and not name.startswith('lvp')])
        subprocess.run(['mount', '--bind', self.vulkan, VULKAN], check=True)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=755', 'run', '/run'], check=True)
        os.mkdir(os.path.dirname(SYSTEM_SOCKET))

    def install(self, data):
        folder = os.path.join(data, 'implicit_layer.d')
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, 'ringbroker_lease.json'), 'w', encoding='utf-8') as file:
            json.dump(self.manifest, file)


def start(layers, program, **environment):
    os.chmod(layers.folder, 0o755)
    client = Client(layers, None, AS_NOBODY, program=program, **{**LEASE, **environment})
    expect(client.ask('pid') == f'pid: n={client.process.pid}', 'another process')
    return client


def has_rights(client):
    with open(f'/proc/{client.process.pid}/status', encoding='ascii') as file:
        fields = dict(line.split(':\t', 1) for line in file if ':\t' in line)
    return int(fields['CapPrm'], 16) != 0 or fields['Uid'].split()[1] == str(DAEMON)


def has_layer(client):
    with open(f'/proc/{client.process.pid}/maps', encoding='utf-8') as maps:
        return 'ringbroker_lease' in maps.read()


def check_user_folder(place):
    """Only unprivileged programs find a manifest in a user's folder."""
    with Layers() as layers:
        place.install(os.path.join(layers.folder, 'share/vulkan'))
        with start(layers, place.plain, RINGBROKER_SOCKET=SYSTEM_SOCKET) as client:
            expect(client.result('device') == OK, 'no device')
            expect(not has_rights(client) and has_layer(client), 'it does not find the layer')
            expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'not held to it')
        for program in (place.capable, place.setuid):
            with start(layers, program) as client:
                if not has_rights(client):
                    print('file systems without setuid here: skipped')
                    sys.exit(77)
                expect(client.result('device') == OK, 'no device')
                expect(not has_layer(client), 'it looks into folders of its user')
                expect(client.alloc(MIB, 100) == (100, OK), 'it is held to something')


def check_system_folder(place):
    """All programs find a manifest in the system's folder; a privileged program asks the system's broker."""
    place.install(place.vulkan)
    with Layers() as layers:
        log = os.path.join(layers.folder, 'log')
        os.chmod(layers.folder, 0o777)
        with start(layers, place.plain) as client:
            expect(client.result('device') == INITIALIZATION_FAILED, 'of which broker')
        for program in (place.capable, place.setuid):
            with start(layers, program, RINGBROKER_LEASE_LOG=log) as client:
                expect(client.result('device') == OK, 'no device', client.stderr())
                expect(has_rights(client) and has_layer(client), 'it does not find the layer')
                expect(client.alloc(MIB, 100) == (64, OUT_OF_DEVICE_MEMORY), 'not held to it')
            expect(not os.path.exists(log), 'it writes for its user')


def check_exec(place):
    """A lease belongs to one user: a program that stays that user joins the lease, one that becomes
    another user cannot."""
    with Layers() as layers:
        os.chmod(layers.folder, 0o755)
        for program, expected in ((place.capable, OK), (place.setuid, INITIALIZATION_FAILED)):
            command = [CTL, '--socket', SYSTEM_SOCKET, 'exec', '--vram=32MiB', '--']
            with Client(layers, None, [*AS_NOBODY, *command], program=program) as client:
                expect(client.result('device') == expected, 'device', client.stderr())
                if expected == OK:
                    expect(client.alloc(MIB, 100) == (32, OUT_OF_DEVICE_MEMORY), 'not held')
                else:
                    expect('only by a lease, and got no lease' in client.stderr(), client.stderr())


def main():
    if not icd_of('lvp'):
        print('no software Vulkan device: skipped')
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix='rbk-secure-') as folder:
        place = Place(folder)
        with Broker('--socket', SYSTEM_SOCKET):
            check_user_folder(place)
            check_system_folder(place)
            check_exec(place)
        subprocess.run(['umount', VULKAN], check=True)


main()
