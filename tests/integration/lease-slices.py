#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Timeslices of leases, as brokerctl trace shows them.

    lease-slices.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]

The programs share a simulated card, as those of lease-timeslice.py.
"""
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import started
from started import LIMIT, expect, wait_for

timeslice = importlib.import_module('lease-timeslice')
Program, begun, measure = timeslice.Program, timeslice.begun, timeslice.measure

CTL = os.path.abspath(sys.argv[6])
# brokerctl is a client of tenant heavy, if its user is no administrator.
POLICY = f'[tenant heavy]\nmatch-exe = {{0}}/heavy, {CTL}\n[tenant light]\nmatch-exe = {{0}}/light\n'
OTHER_USER = {'user': 65534, 'group': 65534, 'extra_groups': []}
GRACE_NS = 50000000


def ctl(rig, *arguments, **options):
    """Return what brokerctl writes to standard output, and to standard error."""
    result = subprocess.run([CTL, '--socket', rig.broker.socket, *arguments], timeout=LIMIT, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    expect(result.returncode == 0, arguments, result)
    return result.stdout, result.stderr


def leases_of(rig):
    """Return the leases by tenant, once they are listed."""
    return {lease['tenant']: lease for lease in map(json.loads, ctl(rig, 'leases', '--json')[0].splitlines())}


def ns(us):
    """Times have three digits of a microsecond: whole nanoseconds."""
    return round(us * 1000)


class Trace:
    """The leases' spans of a trace: each track has one lease, and its spans do not overlap."""

    def __init__(self, text):
        self.events = json.loads(text)['traceEvents']
        self.spans = [event for event in self.events if event.get('cat', '').startswith('lease')]
        named = {(event['name'], event['pid'], event['tid']): event['args']['name'] for event in self.events
                 if event['ph'] == 'M' and event['name'].endswith('_name')}
        tracks = {}
        for span in self.spans:
            place, arguments = (span['pid'], span['tid']), span['args']
            name = arguments['lease_name']
            expect(named['process_name', span['pid'], 0] == 'tenant ' + arguments['tenant'], span)
            expect(named['thread_name', *place] == f'lease {arguments["lease"]} {name} on GPU1', span, named)
            last = tracks.setdefault(place, [])
            expect(all(one['args']['lease'] == arguments['lease'] for one in last), 'leases on one track', span)
            expect(not last or ns(last[-1]['ts']) + ns(last[-1]['dur']) <= ns(span['ts']), 'overlap', last[-1:], span)
            last.append(span)
        expect(len({(span['args']['lease'], span['args']['tenant']) for span in self.spans}) == len(tracks), tracks.keys())
        times = [event['ts'] for event in self.events if event['ph'] == 'X']
        expect(times == sorted(times), 'not in order')

    def of(self, tenant, category='lease'):
        return [span for span in self.spans if span['args']['tenant'] == tenant and span['cat'] == category]


def check_svg(rig, n_least):
    text, _ = ctl(rig, 'trace', '--svg')
    picture = xml.etree.ElementTree.fromstring(text)
    space = '{http://www.w3.org/2000/svg}'
    texts = [text.text for text in picture.findall(space + 'text')]
    # The legend has a rectangle for each tenant.
    bars = [bar for bar in picture.findall(space + 'rect') if float(bar.get('y')) < float(picture.get('height')) - 70]
    expect(texts[0].startswith('0 executions and ') and int(texts[0].split()[3]) >= n_least, texts)
    expect({f'lease {lease["lease"]}' for lease in leases_of(rig).values()} <= set(texts), texts)
    expect({'heavy', 'light'} <= set(texts) and any('overdue' in text for text in texts), texts)
    expect(len(bars) >= n_least, len(bars))
    # Timeslices, waits and overdue ones differ.
    looks = {(float(bar.get('height')) > 10, bar.get('fill-opacity')) for bar in bars}
    expect(looks == {(True, '0.90'), (False, '0.90'), (True, '0.40')}, looks)


def test_trace():
    """Waits, timeslices and overdue ones are on the track of their lease, with whom they ended for."""
    with begun(POLICY) as rig:
        heavy, light = Program(rig, 2000, 8, name='heavy'), Program(rig, 150000, 2, name='light')
        measure([heavy], .5)
        trace = Trace(ctl(rig, 'trace', '--seconds=2')[0])
        leases = leases_of(rig)
        for tenant, other in (('heavy', 'light'), ('light', 'heavy')):
            spans = trace.of(tenant)
            expect(spans and trace.of(tenant, 'lease-wait'), tenant, trace.spans)
            for span in spans:
                arguments = span['args']
                expect(arguments['lease'] == leases[tenant]['lease'] and arguments['device'] == 'GPU1', span)
                expect(span['name'] == leases[tenant]['name'] and arguments['priority'] == 'normal', span, leases)
                expect(arguments['ended_by'] in ('lease', 'done'), span)
                # The other one may have a timeslice that has not ended yet.
                if arguments['ended_for'] is not None:
                    expect(arguments['ended_by'] == 'lease' and arguments['ended_for'] == leases[other]['lease']
                           and arguments['ended_for_tenant'] == other, span)
            expect(sum(span['args']['ended_for'] is not None for span in spans) >= len(spans) / 2, spans)
        # The heavy program ends in time, and one with submissions of 150 ms does not.
        tails = trace.of('light', 'lease-overdue')
        expect(tails, 'nothing is overdue')
        for span in tails:
            expect(span['name'] == 'overdue' and span['args']['overdue'], span)
            expect(ns(span['dur']) >= GRACE_NS and span['args']['tail_ns'] == ns(span['dur']), span)
        expect(leases['light']['overdue'] >= len(tails), leases, len(tails))
        # Only one of them has the device at a time.
        held = sorted((ns(span['ts']), ns(span['ts']) + ns(span['dur'])) for span in trace.of('heavy') + trace.of('light'))
        expect(all(b[0] >= a[1] - 1000 for a, b in zip(held, held[1:])), held)
        check_svg(rig, len(trace.of('heavy')) // 2)

        # A tenant's trace has its own leases, and does not name others.
        if os.geteuid() == 0:
            os.chmod(rig.broker.socket, 0o666)
            own = Trace(ctl(rig, 'trace', **OTHER_USER)[0])
            expect(own.of('heavy') and {span['args']['tenant'] for span in own.spans} == {'heavy'}, own.spans)
            expect(all(span['args']['ended_for'] is None and span['args']['ended_for_tenant'] is None for span in own.spans)
                   and any(span['args']['ended_by'] == 'lease' for span in own.spans), own.spans)

        # The lease that is left alone goes on without timeslices, and one that left has had its last.
        tracer = started.start([CTL, '--socket', rig.broker.socket, 'trace', '--seconds=3'], stdout=subprocess.PIPE, text=True)
        time.sleep(1)
        light.end()
        text = tracer.communicate(timeout=LIMIT)[0]
        ends = {span['args']['ended_by'] for span in Trace(text).spans}
        expect('alone' in ends, ends)
        heavy.end()


def indices(rig, tenant, *options):
    text, said = ctl(rig, 'trace', *options)
    return [span['args']['index'] for span in Trace(text).of(tenant)], said


def test_lost():
    """Timeslices that were overwritten before they were read are counted, and so are those beyond --max-events."""
    with begun(POLICY) as rig:
        background = Program(rig, 2000, 2, priority='background', name='light', dispatches=20)
        urgent = Program(rig, 10, 1, 1500, 'urgent', name='heavy')
        wait_for(lambda: indices(rig, 'heavy')[0], 'there are no timeslices')
        few, said = indices(rig, 'heavy', '--max-events=3', '--tenant=heavy')
        expect(len(few) <= 3 and 'timeslices are missing, beyond --max-events' in said, few, said)
        tracer = started.start([CTL, '--socket', rig.broker.socket, 'trace', '--seconds=0.5', '--tenant=heavy'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(.25)
        tracer.send_signal(signal.SIGSTOP)
        first = max(indices(rig, 'heavy')[0])
        wait_for(lambda: max(indices(rig, 'heavy')[0]) > first + 1500, 'there are few timeslices')
        tracer.send_signal(signal.SIGCONT)
        text, said = tracer.communicate(timeout=LIMIT)
        found = [span['args']['index'] for span in Trace(text).of('heavy')]
        n_missing = max(found) - min(found) + 1 - len(found)
        expect(n_missing > 400 and f'{n_missing} timeslices are missing: the log was overwritten' in said, n_missing, said)
        expect(len(set(found)) == len(found), 'one is there twice')
        priorities = {(span['args']['tenant'], span['args']['priority']) for span in Trace(ctl(rig, 'trace')[0]).spans}
        expect(priorities == {('heavy', 'urgent'), ('light', 'background')}, priorities)
        # A reset removes earlier ones.
        last = max(indices(rig, 'heavy')[0])
        ctl(rig, 'reset-stats', '--all')
        wait_for(lambda: indices(rig, 'heavy')[0], 'there are no timeslices after the reset')
        found, said = indices(rig, 'heavy')
        expect(min(found) > last and 'missing' not in said, last, found, said)
        urgent.end()
        background.end()


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
