#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tasks of plans and leased programs that share a simulated card: each tenant has its share, whatever it uses the card with.

    lease-plans.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]

The card and the programs are those of lease-timeslice.py. Figures are printed; a test fails by an order of magnitude only, since
the machine's own scheduler takes part.
"""
import importlib
import os
import sys
import time

from simulated import GPU

timeslice = importlib.import_module('lease-timeslice')
Program, begun, measure, judge = timeslice.Program, timeslice.begun, timeslice.measure, timeslice.judge
Client, MODEL_CLIENT = timeslice.Client, timeslice.MODEL_CLIENT
MIB, DEPTH = 1, 4


def policy(weight=100, has_heavy=False):
    """Return a policy in which the tasks' tenant has @weight, and program heavy too if @has_heavy."""
    plans, heavy = os.path.realpath(MODEL_CLIENT), 'match-exe = {0}/heavy\n'
    return (f'[tenant plans]\nmatch-exe = {plans}{", {0}/heavy" if has_heavy else ""}\nweight = {weight}\n'
            + ('' if has_heavy else f'[tenant heavy]\n{heavy}') + '[tenant light]\nmatch-exe = {0}/light\n')


class Tasks:
    """A client that keeps so many tasks in flight, each of its own plan."""

    def __init__(self, client, depth=DEPTH):
        self.client, self.names = client, [f'm{i}' for i in range(depth)]
        for name in self.names:
            client.tell('plan', name, str(MIB))
            client.await_state(name, 'vram')
        self.rate()
        self.task_s = 1 / self.rate()

    def rate(self):
        """Return the tasks per second with nothing else on the card."""
        self.start()
        time.sleep(.7)
        return self.stop()

    def start(self):
        for name in self.names:
            self.client.tell('start', name)
        self.began = time.monotonic()

    def stop(self):
        """Return the tasks per second that ran on the card."""
        n = 0
        for name in self.names:
            _, by = self.client.stop(name)
            n += sum(count for (device, _), count in by.items() if device == GPU)
        return n / (time.monotonic() - self.began)


def parts_of(programs, tasks, seconds):
    """Return the parts of the card that programs had, and then tasks, by their time before and after. The programs end."""
    tasks.start()
    measure(programs, 1)
    tasks.stop()
    tasks.start()
    figures, took = measure(programs, seconds)
    rate = tasks.stop()
    for program in programs:
        program.end()
    tasks.task_s = (tasks.task_s + 1 / tasks.rate()) / 2
    return [n * program.us / 1e6 / took for (n, *_), program in zip(figures, programs)] + [rate * tasks.task_s]


def test_one_to_one():
    """A client with many tasks and a program, of two tenants with equal weights."""
    with begun(policy()) as rig, Client(MODEL_CLIENT, rig.broker) as client:
        tasks = Tasks(client)
        a = Program(rig, 1000, 4, name='heavy')
        parts = parts_of([a], tasks, 5)
        print(f'a program and tasks of {tasks.task_s * 1e6:.0f} us, 1:1: {parts[0]:.3f}, {parts[1]:.3f} of the card', flush=True)
        judge(.5 < parts[0] / parts[1] < 2, 'not 1:1')


def test_with_two_programs():
    """Two programs and a client, 1:1:2."""
    with begun(policy(200)) as rig, Client(MODEL_CLIENT, rig.broker) as client:
        tasks = Tasks(client)
        a, b = Program(rig, 1000, 4, name='heavy'), Program(rig, 1000, 4, name='light')
        parts = parts_of([a, b], tasks, 5)
        print(f'two programs and tasks, 1:1:2: {parts[0]:.3f}, {parts[1]:.3f}, {parts[2]:.3f} of the card', flush=True)
        judge(.6 < parts[0] / parts[1] < 1.6, 'not 1:1')
        judge(.5 < (parts[0] + parts[1]) / parts[2] < 2, 'not 2:2')


def test_as_one():
    """A tenant's tasks and its program have together what another tenant's program has."""
    with begun(policy(has_heavy=True)) as rig, Client(MODEL_CLIENT, rig.broker) as client:
        tasks = Tasks(client)
        a, b = Program(rig, 1000, 4, name='heavy'), Program(rig, 1000, 4, name='light')
        parts = parts_of([a, b], tasks, 5)
        print(f'a program and tasks of one tenant, and another program: {parts[0]:.3f} + {parts[2]:.3f}, {parts[1]:.3f} of the card',
              flush=True)
        judge(.5 < (parts[0] + parts[2]) / parts[1] < 2, 'not 1:1')


def test_urgent_program():
    """An urgent program waits for the tasks that the card has, and not for their queue."""
    with begun(policy()) as rig, Client(MODEL_CLIENT, rig.broker) as client:
        tasks = Tasks(client)
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        (alone, ), _ = measure([urgent], 1)
        tasks.start()
        measure([urgent], .5)
        (mine, ), _ = measure([urgent], 2)
        rate = tasks.stop()
        print(f'urgent job of 1 ms, alone: p50 {alone[1]:.0f} us, p99 {alone[2]:.0f}; beside tasks: p50 {mine[1]:.0f}, '
              f'p99 {mine[2]:.0f} us; the tasks have {rate * tasks.task_s:.2f} of the card', flush=True)
        judge(mine[1] < 6000, 'it waits for tasks')
        judge(rate * tasks.task_s > .5, 'the tasks get little')
        urgent.end()


def test_single_tasks():
    """A client that sends one task after the other waits for little, whatever is beside it."""
    with begun(policy()) as rig, Client(MODEL_CLIENT, rig.broker) as client:
        tasks = Tasks(client, 1)
        for what, priority, dispatches in (('background', 'background', 100), ('whole', 'normal', 0), ('parts', 'normal', 100)):
            program = Program(rig, 5000, 20, priority=priority, dispatches=dispatches)
            program_part, part = parts_of([program], tasks, 2)
            print(f'tasks one after the other, beside submissions of 5 ms, {what}: {part:.2f} of the rate alone; '
                  f'the program has {program_part:.2f} of the card', flush=True)
            judge(part > (.5 if what == 'background' else .05), 'the tasks wait')


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
