#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Timeslices of leases, as brokerctl trace shows them and brokerctl why explains them.

    lease-slices.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]

The programs share a simulated card, as those of lease-timeslice.py.
"""
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import started
from started import LIMIT, expect, wait_for

timeslice = importlib.import_module('lease-timeslice')
Program, begun, measure = timeslice.Program, timeslice.begun, timeslice.measure
Client, judge = timeslice.Client, timeslice.judge

CTL = os.path.abspath(sys.argv[6])
# brokerctl is a client of tenant heavy, if its user is no administrator.
POLICY = f'[tenant heavy]\nmatch-exe = {{0}}/heavy, {CTL}\n[tenant light]\nmatch-exe = {{0}}/light\n'
OTHER_USER = {'user': 65534, 'group': 65534, 'extra_groups': []}
GRACE_NS = 50000000
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../doc/brokerctl.1')


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
        wait_for(lambda: len(indices(rig, 'heavy')[0]) > 10, 'there are no timeslices')
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


def why(rig, *arguments, **options):
    """Return the answer about a lease, whose causes add up to its time, the largest first."""
    answer = json.loads(ctl(rig, 'why', '--json', *arguments, **options)[0])
    causes = [cause['ns'] for cause in answer['causes']]
    expect(answer['type'] == 'why-lease' and answer['what'] == 'lease' and causes == sorted(causes, reverse=True), answer)
    expect(not causes or .97 * answer['total_ns'] <= sum(causes) <= answer['total_ns'] * 1.001, answer)
    expect(bool(causes) == (answer['timeslices'] > 0), answer)
    return answer


def check_documented(answer):
    """The manual lists the members of an answer."""
    with open(PAGE, encoding='utf-8') as file:
        item = file.read().split('.It Dq why-lease\n')[1].split('.It Dq ')[0]
    known = set(re.findall(r'[a-z_]+', ' '.join(re.findall(r'^\.Va (.*)$', item, re.MULTILINE))))
    expect(set(answer) | set(answer['causes'][0]) == known | {'type'}, answer, known)
    names = set(re.findall('[a-z-]+', re.search(r'^\.Va cause\n\.Pq (.*)$', item, re.MULTILINE).group(1)))
    expect({cause['cause'] for cause in answer['causes']} <= names, answer, names)


def part_of(answer, name, **about):
    """Return the part of the time that the cause took, with members as @about says."""
    return sum(cause['share'] for cause in answer['causes'] if cause['cause'] == name
               and all(cause[key] == value for key, value in about.items()))


def has_fact(answer, *texts):
    return any(all(text in fact for text in texts) for fact in answer['facts'])


def test_why_alone():
    """Nothing is logged of a lease that is alone, nor of one that does not share."""
    with begun(POLICY) as rig:
        alone, apart = Program(rig, 2000, 4, name='light'), Program(rig, 2000, 4, name='heavy', priority=None)
        answer = why(rig, 'lease', 'light')
        expect(has_fact(answer, 'held back only while others use the device') and len(answer['facts']) == 1, answer)
        expect(answer['tenant'] == 'light' and answer['lease_name'] == 'light' and not answer['has_ended'], answer)
        answer = why(rig, 'lease', str(leases_of(rig)['heavy']['lease']))
        expect(has_fact(answer, 'nothing gives them a priority', 'neither wait nor are waited for',
                        f'brokerctl lease {answer["lease"]} --priority=') and len(answer['facts']) == 1, answer)
        text, _ = ctl(rig, 'why', 'lease', 'light')
        expect(text.startswith(f'lease {leases_of(rig)["light"]["lease"]} (light) of tenant light: no timeslice of it'), text)
        for arguments in (['lease', 'nothing'], ['lease', '77'], ['lease', 'light', '--tenant=heavy']):
            result = subprocess.run([CTL, '--socket', rig.broker.socket, 'why', *arguments], stderr=subprocess.PIPE,
                                    stdout=subprocess.PIPE, timeout=LIMIT, check=False, text=True)
            expect(result.returncode == 1 and 'there is no lease' in result.stderr and not result.stdout, result)
        alone.end()
        apart.end()


def test_why_overdue():
    """A lease with long submissions is told of its overdue time, and the other one learns behind whom it waited."""
    with begun(POLICY) as rig:
        heavy, light = Program(rig, 2000, 8, name='heavy'), Program(rig, 150000, 2, name='light')
        numbers = {tenant: lease['lease'] for tenant, lease in leases_of(rig).items()}
        # It does not share the card, and keeps the log of its tenant.
        second = Program(rig, 10, 1, 100000, priority=None, name='light')
        measure([heavy], 3)
        answer = why(rig, 'lease', str(numbers['light']))
        check_documented(answer)
        expect(answer['tenant'] == 'light' and answer['priority'] == 'normal' and answer['overdue'] > 0, answer)
        judge(answer['tail_ns'] > GRACE_NS and part_of(answer, 'tail') > .2 and part_of(answer, 'held') > 0, answer)
        judge(part_of(answer, 'wait-lease', lease=numbers['heavy'], tenant='heavy', priority='normal') > .1, answer)
        judge(has_fact(answer, 'it was overdue', 'up to ', '--max-part', 'exec-max-part'), answer)
        text, _ = ctl(rig, 'why', str(numbers['light']))
        expect(text.startswith(f'lease {numbers["light"]} (light) of tenant light: ') and ' seen, in ' in text, text)
        expect(f'waiting behind lease {numbers["heavy"]} (heavy of tenant heavy, priority normal)' in text, text)
        expect('  - it was overdue' in text and text.count('\n') == 1 + len(answer['causes']) + len(answer['facts']), text)
        answer = why(rig, 'lease', 'heavy')
        judge(part_of(answer, 'wait-lease', lease=numbers['light'], tenant='light') > .02, answer)
        judge(has_fact(answer, f'lease {numbers["light"]} was overdue', 'while this one waited',
                       f'see brokerctl why lease {numbers["light"]}'), answer)

        # The tenant's own user is not told who the others are.
        if os.geteuid() == 0:
            os.chmod(rig.broker.socket, 0o666)
            answer = why(rig, 'lease', 'heavy', **OTHER_USER)
            judge(part_of(answer, 'wait-others') > .02 and not part_of(answer, 'wait-lease'), answer)
            expect('light' not in json.dumps(answer) and answer['tenant_share'] is None, answer)

        # A lease that has ended is known while its tenant has a program; then it is not known behind whom others waited.
        light.end()
        answer = why(rig, 'lease', str(numbers['light']))
        expect(answer['has_ended'] and answer['overdue'] > 0 and answer['lease_name'] is None, answer)
        text, _ = ctl(rig, 'why', 'lease', str(numbers['light']), '--tenant=light')
        expect('of tenant light, which has ended: ' in text, text)
        second.end()
        answer = why(rig, 'lease', 'heavy')
        judge(part_of(answer, 'wait') > .01, answer)
        heavy.end()


def test_why_whole():
    """Programs are told what of their work cannot be divided, and what helps."""
    with begun(POLICY) as rig:
        whole = Program(rig, 20000, 3, name='heavy', dispatches=10, kind='w')
        unsliced = Program(rig, 20000, 3, name='light', dispatches=1, kind='a')
        divided = Program(rig, 20000, 3, dispatches=10, max_part='1ms')
        for tenant, name in (('heavy', 'whole'), ('light', 'unsliced'), ('default', 'slices')):
            wait_for(lambda: leases_of(rig)[tenant][name], tenant, 'has no', name)
        leases = leases_of(rig)
        expect(leases['heavy']['parts'] == leases['heavy']['unsliced'] == 0, leases)
        expect(leases['light']['whole'] == leases['light']['slices'] == 0, leases)
        expect(leases['default']['whole'] == leases['default']['unsliced'] == 0, leases)
        answer = why(rig, 'lease', 'heavy')
        expect(has_fact(answer, ' of its command buffers stayed whole', 'command buffers of their own')
               and not has_fact(answer, 'dispatch'), answer)
        answer = why(rig, 'lease', 'light')
        expect(has_fact(answer, ' of its dispatches ', 'and stayed whole', 'smaller dispatches')
               and not has_fact(answer, 'command buffers stayed'), answer)
        answer = why(rig, 'lease', 'other')
        expect(not has_fact(answer, 'stayed whole'), answer)
        for program in (whole, unsliced, divided):
            program.end()


def test_why_behind():
    """A lease that is overdue because the device works for another overdue one is not told to do anything."""
    with begun(POLICY) as rig:
        # With more submissions, its program would give up.
        programs = [Program(rig, 2000, 2, name='heavy'), Program(rig, 150000, 2, name='light'),
                    Program(rig, 2000, 2)]
        measure(programs, 3)
        answer = why(rig, 'lease', 'heavy')
        judge(answer['overdue_behind_others'] > 0, answer)
        judge(has_fact(answer, f'it was overdue {answer["overdue_behind_others"]} time',
                       'only because the device still worked for an overdue timeslice of others'), answer)
        for program in programs:
            program.end()


def test_why_stopped():
    """A program that is stopped while it has the device has an overdue timeslice that is not logged yet."""
    with begun() as rig:
        other = Program(rig, 1000, 2)
        # On a busy machine a program may be overdue before it is stopped.
        for _ in range(10):
            victim = Program(rig, 1000, 2, name='light')
            measure([other], .3)
            victim.process.send_signal(signal.SIGSTOP)
            wait_for(lambda: why(rig, 'lease', 'light')['overdue'] > 0, 'it is not overdue')
            answer = why(rig, 'lease', 'light')
            if answer['tail_ns'] == 0:
                break
            victim.kill()
        expect(has_fact(answer, 'overdue 1 time:', 'is logged when it ends', '--max-part'), answer)
        victim.process.send_signal(signal.SIGCONT)
        wait_for(lambda: why(rig, 'lease', 'light')['tail_ns'] > GRACE_NS, 'the end is not logged')
        victim.end()
        other.end()


def test_why_priorities():
    """Background leases are told that they wait long, and a tenant that it is over its share."""
    with begun(POLICY) as rig:
        heavy = Program(rig, 2000, 8, name='heavy')
        light = Program(rig, 3000, 4, priority='background', name='light')
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        measure([heavy], 3.5)
        leases = {lease['name']: lease['lease'] for lease in leases_of(rig).values()}
        answer = why(rig, 'lease', 'light')
        judge(answer['priority'] == 'background' and answer['late'] > 0, answer)
        judge(part_of(answer, 'wait-lease', lease=leases['heavy']) > .5, answer)
        judge(part_of(answer, 'wait-lease', lease=leases['other'], priority='urgent') > .01, answer)
        judge(has_fact(answer, 'only after it had waited for more than a second',
                       f'brokerctl lease {leases["light"]} --priority=', 'exec-priority'), answer)
        answer = why(rig, 'lease', 'heavy')
        judge(answer['tenant_share'] > .7 and .45 < answer['tenant_weight_share'] < .55, answer)
        judge(has_fact(answer, 'its tenant is over its share', '50.0%'), answer)
        judge(part_of(answer, 'held') > .5, answer)
        answer = why(rig, 'lease', 'other', '--tenant=default')
        judge(answer['priority'] == 'urgent' and part_of(answer, 'idle') > .4, answer)
        judge(not has_fact(answer, 'over its share') and part_of(answer, 'wait-lease', lease=leases['heavy']) > 0, answer)
        for program in (heavy, light, urgent):
            program.end()


def test_why_many():
    """Few leases are named; waits behind others are added up."""
    with begun(POLICY) as rig:
        programs = [Program(rig, 1000, 2) for _ in range(7)]
        heavy = Program(rig, 1000, 2, name='heavy')
        measure([heavy], 2)
        answer = why(rig, 'lease', 'heavy')
        named = [cause for cause in answer['causes'] if cause['cause'] == 'wait-lease']
        expect(len(named) == 5 and all(cause['tenant'] == 'default' for cause in named), answer)
        judge(part_of(answer, 'wait-leases') > 0
              and any('behind 2 other leases' in cause['meaning'] for cause in answer['causes']), answer)
        for program in (*programs, heavy):
            program.end()


def test_why_plans():
    """A background lease is told that tasks of plans come first."""
    with begun(POLICY) as rig, Client(timeslice.MODEL_CLIENT, rig.broker) as client:
        client.tell('plan', 'm', '1')
        client.await_state('m', 'vram')
        client.tell('start', 'm')
        program = Program(rig, 2000, 4, priority='background', name='light')
        measure([program], 3.5)
        answer = why(rig, 'lease', 'light')
        trace = Trace(ctl(rig, 'trace')[0])
        client.stop('m')
        judge(part_of(answer, 'wait-plans') > .5, answer)
        spans = trace.of('light')
        expect(any(span['args']['wait_for_plans_ns'] > 0 for span in spans)
               and any(span['args']['ended_by'] == 'plans' for span in spans), spans)
        expect(any(event.get('cat') == 'execution' for event in trace.events), 'there are no tasks')
        program.end()


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
