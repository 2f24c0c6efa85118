#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model is evicted and comes back, as users report it: the model is in the card's memory and in use;
another process allocates memory, and the model is evicted; that process ends, and the model is loaded
again without a restart. The card is simulated, and each step is printed as a line.

    evicted-model.py AMDGPU-SIM BROKERD MODEL-CLIENT
"""
import collections
import sys
import time

from simulated import GPU, MIB, Broker, Cards, Client, await_true

SIM, BROKERD, CLIENT = sys.argv[1:4]
MODEL_MIB = 128
# The model and these bytes fill the card, except for the headroom that the broker keeps free.
HOG = '368MiB'
PLACES = {'vram': 'VRAM', 'gtt': 'host (GTT)', 'evicted': 'evicted'}


class Story:
    """Visible events, printed with their time."""

    def __init__(self, cards, broker, client):
        self.cards, self.broker, self.client = cards, broker, client
        self.start = time.monotonic()
        print('     ms   VRAM: broker  others    free   the model is in   tasks since then'
              ' by device and reason', flush=True)
        client.tell('start', 'model')

    def tell(self, what, at, wanted=None):
        """Wait for a task of @wanted. Return: tasks since the last line, by (device, reason)."""
        state = self.client.memory('model')[0]
        card = self.cards.show()
        own = self.cards.held(self.broker.pid)[0]
        tasks = collections.Counter()

        def seen():
            tasks.update(self.client.stop('model')[1])
            self.client.tell('start', 'model')
            return wanted is None or wanted in tasks

        await_true(f'a task of {wanted}', seen)
        used, total = card['vram-used'], card['vram-total']
        places = ', '.join(f'{"GPU" if device == GPU else "CPU"} {n} ({reason})'
                           for (device, reason), n in sorted(tasks.items(), reverse=True))
        print(f'{(at - self.start) * 1e3:7.0f}   {what}', flush=True)
        print(f'          {own // MIB:6} MiB {(used - own) // MIB:7} {(total - used) // MIB:7}'
              f'   {PLACES[state]:<15}   {places}', flush=True)
        return tasks


def play(kernel):
    print(f'--- a card of 512 MiB, Linux {kernel}, a model of {MODEL_MIB} MiB', flush=True)
    with Cards(SIM, 'polaris10,vram=512MiB') as cards:
        cards.control('set', 'card0', 'kernel=' + kernel)
        with Broker(BROKERD, cards) as broker, Client(CLIENT, broker) as client:
            client.tell('plan', 'model', MODEL_MIB)
            came = client.await_state('model', 'vram')
            story = Story(cards, broker, client)
            time.sleep(0.05)
            tasks = story.tell('a client has made a model and uses it', came,
                               (GPU, 'user-preference'))
            assert {device for device, _ in tasks} == {GPU}, tasks

            with cards.hog('card0', '--vram', HOG):
                took = time.monotonic()
                gone = client.await_state('model', 'not-vram')
                await_true('the memory is given back',
                           lambda: cards.held(broker.pid)[0] < MODEL_MIB * MIB)
                given_back = time.monotonic()
                # The kernel frees the memory before the broker notices.
                await_true('nothing is charged', lambda: client.charged()[0] == 0)
                story.tell('another process takes 368 MiB', took, (0, 'memory-constraint'))
                # The next best place is host memory that the card can reach.
                second = client.await_state('model', 'gtt')
                story.tell('the model has come to the next best place', second)
                assert cards.held(broker.pid)[0] < MODEL_MIB * MIB
            left = time.monotonic()
            back = client.await_state('model', 'vram')
            story.tell('that process has ended, and the model is back', back)
            time.sleep(0.05)
            tasks = story.tell('from now on it is as before', time.monotonic(),
                               (GPU, 'user-preference'))
            assert {device for device, _ in tasks} == {GPU}, tasks
            _, resident, required, n_evictions, _ = client.memory('model')
            assert resident >= required and n_evictions == 1, client.memory('model')
            assert cards.held(broker.pid)[0] >= MODEL_MIB * MIB
            client.stop('model')
            print(f'no task goes there {max(gone - took, 0) * 1e3:.0f} ms after the other process'
                  f' has its memory, {max(given_back - took, 0) * 1e3:.0f} ms after it ours is given'
                  f' back; the model is back {(back - left) * 1e3:.0f} ms after its end',
                  flush=True)


for version in '6.1', '6.14':
    play(version)
