#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Vulkan layer: memory that outlives the process or the allocation that it was charged for.

    lease-sharing.py BROKERD LEASE_CLIENT MANIFEST FAKE_CARD_LAYER [TEST...]
"""
import ctypes
import os
import resource
import signal

from leaserig import (INITIALIZATION_FAILED, MIB, OK, OUT_OF_DEVICE_MEMORY, Broker, Client, Layers,
                      await_true, expect, run)


def test_killed_with_children():
    """A killed program's charges end, although its children live on."""
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
    """A program that exec() starts does not inherit the connection."""
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


def launder(client, hide, unhide):
    """Memory that is exported, hidden by @hide and freed is charged until @unhide."""
    for _ in range(2):
        expect(client.result(f'exportable {60 * MIB}') == OK, 'exportable')
        hidden = hide(client.number('export 0', 'fd'))
        client.ask('free 0')
        for _ in range(3):
            expect(client.heap().used == 60 * MIB, 'memory for nothing')
            expect(client.result(f'exportable {60 * MIB}') == OUT_OF_DEVICE_MEMORY,
                   'memory for nothing')
        unhide(hidden)
        await_true('the memory is freed', lambda: client.heap().used == 0)
        client.ask('free-all')


def test_hidden_in_messages():
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        launder(client, lambda fd: client.ask(f'park {fd}'), lambda _: client.ask('unpark'))


def test_hidden_in_mappings():
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        launder(client, lambda fd: client.ask(f'map {fd} {60 * MIB}'),
                lambda _: client.ask('unmap'))


PIDFD_GETFD = 438


def test_hidden_in_processes():
    """Memory hidden in a process without a lease stays charged."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        pidfd = os.pidfd_open(client.process.pid)

        def hide(fd):
            copy = libc.syscall(PIDFD_GETFD, pidfd, fd, 0)
            expect(copy >= 0, os.strerror(ctypes.get_errno()))
            client.ask(f'close {fd}')
            return copy

        launder(client, hide, os.close)
        os.close(pidfd)


def test_reopened_hidden_memory():
    """A reopened file of the memory that is hidden is not found, but is charged when it is used."""
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.result(f'exportable {60 * MIB}') == OK, 'exportable')
        fd = client.number('export 0', 'fd')
        with open(f'/proc/{client.process.pid}/fd/{fd}', 'r+b', buffering=0) as anew:
            path = f'/proc/{os.getpid()}/fd/{anew.fileno()}'
            client.ask('free 0')
            client.ask(f'close {fd}')
            await_true('it is taken for free', lambda: client.heap().used == 0)
            wrapper = ['sh', '-c', f'exec "$@" 9<>{path}', 'sh']
            with Client(layers, broker, wrapper=wrapper, RINGBROKER_LEASE_VRAM='64MiB') as other:
                expect(other.result('device') == OK, 'no device')
                expect(other.result(f'import {60 * MIB} 9') == OK, 'import')
                expect(60 * MIB <= other.heap().used <= 61 * MIB, 'for nothing')


def test_importer_is_charged():
    """Memory that outlives its process is charged to the process that imports it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Broker(memory='100MiB') as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.result(f'exportable {60 * MIB}') == OK, 'exportable')
        fd = client.number('export 0', 'fd')
        pidfd = os.pidfd_open(client.process.pid)
        copy = libc.syscall(PIDFD_GETFD, pidfd, fd, 0)
        os.close(pidfd)
        client.kill()
        wrapper = ['sh', '-c', f'exec "$@" 9<>/proc/{os.getpid()}/fd/{copy}', 'sh']
        with Client(layers, broker, wrapper=wrapper, RINGBROKER_LEASE_VRAM='64MiB',
                    RINGBROKER_LEASE_MIN='64MiB', RINGBROKER_LEASE_WAIT='50s') as other:
            expect(other.result('device') == OK, 'its lease is not free')
            expect(other.result(f'import {60 * MIB} 9') == OK, 'import')
            expect(60 * MIB <= other.heap().used <= 61 * MIB, 'for nothing')
        os.close(copy)


def test_allocator_pays_until_release():
    """The process that allocated the memory pays until the importer has released it, too. Both have
    leases, and each may release first."""
    lease = {'RINGBROKER_LEASE_VRAM': '64MiB'}
    for first_lets_go in (0, 1):
        with Broker() as broker, Layers() as layers, Client(layers, broker, **lease) as maker:
            expect(maker.result('device') == OK, 'no device')
            expect(maker.result(f'exportable {40 * MIB}') == OK, 'exportable')
            fd = maker.number('export 0', 'fd')
            wrapper = ['sh', '-c', f'exec "$@" 9<>/proc/{maker.process.pid}/fd/{fd}', 'sh']
            with Client(layers, broker, wrapper=wrapper, **lease) as user:
                expect(user.result('device') == OK, 'no device')
                expect(user.result(f'import {40 * MIB} 9') == OK, 'import')
                if first_lets_go:
                    user.ask('free 0')
                    await_true('its part', lambda: user.heap().used == 0)
                    expect(maker.heap().used == 40 * MIB, 'it has it yet')
                maker.ask('free 0')
                maker.ask(f'close {fd}')
                if not first_lets_go:
                    user.ask('free 0')
                for client in (maker, user):
                    await_true('all of it', lambda c=client: c.heap().used == 0)
                    expect(client.alloc(64 * MIB) == (1, OK), 'it is charged for nothing')
                    client.ask('free-all')


def test_no_descriptors_left():
    """A program without free descriptors for the layer is charged until it ends."""
    with Broker() as broker, Layers() as layers, \
            Client(layers, broker, RINGBROKER_LEASE_VRAM='64MiB') as client:
        expect(client.result('device') == OK, 'no device')
        expect(client.result(f'exportable {40 * MIB}') == OK, 'exportable')
        used = len(os.listdir(f'/proc/{client.process.pid}/fd'))
        resource.prlimit(client.process.pid, resource.RLIMIT_NOFILE, (used + 1, 4096))
        fd = client.number('export 0', 'fd')
        client.ask('free 0')
        client.ask(f'close {fd}')
        expect(client.heap().used == 40 * MIB, 'hidden memory is not charged')


if __name__ == '__main__':
    run([test_killed_with_children, test_sockets_end_with_exec, test_hidden_in_messages,
         test_hidden_in_mappings, test_hidden_in_processes, test_reopened_hidden_memory,
         test_importer_is_charged, test_allocator_pays_until_release, test_no_descriptors_left])
