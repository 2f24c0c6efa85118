#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cards that are reset or suspended, with tasks in flight or idle: every task completes, and models are
loaded again.

    lost-card.py AMDGPU-SIM BROKERD MODEL-CLIENT
"""
import sys
import time

from simulated import GPU, MIB, Broker, Cards, Client, await_true

SIM, BROKERD, CLIENT = sys.argv[1:4]
BACK = 'POLARIS10)) is back'


def await_gpu(client):
    """Wait until the card is used again: a card that was lost repeatedly is out of use for a while."""
    await_true('tasks run on the card', lambda: client.run('model')[0] == GPU)


def in_use(cards, broker, client, what, *reset):
    """The card is reset under tasks."""
    n_back = broker.n_says(BACK)
    client.tell('start', 'model')
    time.sleep(0.02)
    cards.control('reset', 'card0', *reset)
    await_true('the device is back', lambda: broker.n_says(BACK) > n_back)
    client.await_state('model', 'vram')
    n, tasks = client.stop('model')
    await_gpu(client)
    print(f'{what}: {n} tasks, {tasks}', flush=True)
    return tasks


def innocent(cards, broker, client):
    """The driver blames another process for the reset: the tasks continue."""
    n_back = broker.n_says(BACK)
    client.tell('start', 'model')
    cards.control('reset', 'card0', '--innocent')
    time.sleep(0.05)
    _, tasks = client.stop('model')
    await_gpu(client)
    print(f'innocent: {tasks}, reopened {broker.n_says(BACK) - n_back} times', flush=True)


def idle_loss(cards, broker, client):
    """The contents of memory are lost while no task runs."""
    n_back = broker.n_says(BACK)
    cards.control('reset', 'card0', '--vram-lost')
    await_true('the device is back', lambda: broker.n_says(BACK) > n_back)
    client.await_state('model', 'vram')
    await_gpu(client)


def asleep(cards, _broker, client):
    client.tell('start', 'model')
    cards.control('suspend', 'card0')
    time.sleep(0.05)
    cards.control('resume', 'card0')
    time.sleep(0.05)
    _, tasks = client.stop('model')
    await_gpu(client)
    print(f'suspended: {tasks}', flush=True)


def play():
    with Cards(SIM, 'polaris10,vram=512MiB') as cards:
        with Broker(BROKERD, cards) as broker, Client(CLIENT, broker) as client:
            client.tell('plan', 'model', 16)
            client.await_state('model', 'vram')
            assert client.charged()[0] >= 16 * MIB
            # No task is lost, whether in flight or submitted during the reset. Repeat until a task ran on the
            # CPU: a client that did not get a processor meanwhile submitted none.
            await_true('tasks run on the CPU', lambda: any(
                device == 0 for device, _ in in_use(cards, broker, client, 'guilty')))
            in_use(cards, broker, client, 'VRAM lost', '--vram-lost')
            innocent(cards, broker, client)
            idle_loss(cards, broker, client)
            asleep(cards, broker, client)


play()
