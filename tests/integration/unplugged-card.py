#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Cards that are unplugged and plugged in again, while tasks run, while models are loaded and while
idle: every task completes, no charge remains for a missing card, and models are loaded again with the
card.

    unplugged-card.py AMDGPU-SIM BROKERD MODEL-CLIENT
"""
import errno
import sys
import time

from simulated import GPU, MIB, Broker, Cards, Client, await_true

SIM, BROKERD, CLIENT = sys.argv[1:4]
BACK = 'POLARIS10)) is back'


def in_use(cards, broker, client):
    client.tell('start', 'model')
    time.sleep(0.02)
    cards.control('unplug', 'card0')
    client.await_state('model', 'lost')
    await_true('nothing is charged', lambda: client.charged() == (0, 0))
    seen = set()

    def goes_elsewhere():
        """Return true once tasks run elsewhere; the client counts tasks when they are stopped, and then
        restarts them."""
        seen.update(client.stop('model')[1])
        client.tell('start', 'model')
        return (0, 'gpu-unavailable') in seen

    await_true('tasks run on the CPU', goes_elsewhere)
    cards.control('plug', 'card0')
    start = time.monotonic()
    client.await_state('model', 'vram')
    took = time.monotonic() - start
    assert broker.n_says(BACK) == 1

    def is_used():
        seen.update(client.stop('model')[1])
        client.tell('start', 'model')
        return (GPU, 'user-preference') in seen

    await_true('tasks run on the card', is_used)
    _, tasks = client.stop('model')
    assert client.run('model')[0] == GPU
    assert client.charged()[0] >= 16 * MIB
    print(f'pulled out under tasks: back {took * 1e3:.0f} ms after the card, {tasks} after that',
          flush=True)


def while_loading(cards, client):
    """A model is being loaded when the card is unplugged."""
    for delay_ms in 3, 30:
        client.ask('plan', 'late', 64)
        time.sleep(delay_ms / 1e3)
        cards.control('unplug', 'card0')
        client.answer('plan')
        client.await_state('model', 'lost')
        assert client.run('late') == (0, 'gpu-unavailable')
        await_true('nothing is charged', lambda: client.charged() == (0, 0))
        cards.control('plug', 'card0')
        client.await_state('model', 'vram')
        client.await_state('late', 'vram')
        client.tell('free', 'late')


def without_work(cards, client):
    """The card is reopened and unplugged again before a submission, which some drivers mishandle."""
    assert int(client.tell('evict', 'model')[1]) == 0
    assert client.charged() == (0, 0)
    cards.control('unplug', 'card0')
    client.await_state('model', 'lost')
    cards.control('plug', 'card0')
    client.await_state('model', 'evicted')
    cards.control('unplug', 'card0')
    assert int(client.tell('prefetch', 'model')[1]) == -errno.EIO
    assert client.run('model') == (0, 'gpu-unavailable')
    cards.control('plug', 'card0')
    client.await_state('model', 'vram')
    assert client.run('model')[0] == GPU


def play():
    with Cards(SIM, 'polaris10,vram=512MiB') as cards:
        with Broker(BROKERD, cards) as broker, Client(CLIENT, broker) as client:
            client.tell('plan', 'model', 16)
            client.await_state('model', 'vram')
            assert client.charged()[0] >= 16 * MIB
            in_use(cards, broker, client)
            while_loading(cards, client)
            without_work(cards, client)


play()
