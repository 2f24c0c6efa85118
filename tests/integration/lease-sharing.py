#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Vulkan layer: what outlives the process or the allocation that it was charged for.

    lease-sharing.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER [TEST...]
"""
import os
import signal

from leaserig import (INITIALIZATION_FAILED, MIB, OK, Broker, Client, Layers, await_true, expect,
                      run)


def test_killed_with_children():
    """A program that is killed leaves nothing, though children of it live on."""
    whole = {'RINGBROKER_LEASE_VRAM': '60MiB', 'RINGBROKER_LEASE_MIN': '60MiB'}
    with Broker(memory='100MiB') as broker, Layers() as layers, \
            Client(layers, broker, **whole) as client, Client(layers, broker, **whole) as other:
        expect(client.result('device') == OK, 'no device')
        expect(client.alloc(60 * MIB) == (1, OK), 'no memory')
        expect(client.ask('fork') == 'child', 'no child')
        expect(other.result('device') == INITIALIZATION_FAILED, 'the parent has the memory')
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait()
        await_true('its room', lambda: other.result('device') == OK)
        expect(client.number('pid', 'n') != client.process.pid, 'the child is gone, too')
        expect(client.result('device') == INITIALIZATION_FAILED, 'the other one has the memory')


def test_sockets_end_with_exec():
    """What exec() starts does not get the connection."""
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        folder = f'/proc/{client.process.pid}'
        sockets = [fd for fd in os.listdir(f'{folder}/fd')
                   if os.readlink(f'{folder}/fd/{fd}').startswith('socket:')]
        expect(sockets, 'no connection')
        for fd in sockets:
            with open(f'{folder}/fdinfo/{fd}', encoding='utf-8') as file:
                flags = int(file.read().split('flags:')[1].split()[0], 8)
            expect(flags & os.O_CLOEXEC, 'it stays open')


if __name__ == '__main__':
    run([test_killed_with_children, test_sockets_end_with_exec])
