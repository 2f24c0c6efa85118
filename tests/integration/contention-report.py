#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A real broker's report of contention, by each source that this machine has.

    contention-report.py BROKERCTL BROKERD STATS_CLIENT

The test requests each source by name; a missing source must lead to a fallback and a message. The
figures have the documented members, the causing program is named, tenants see themselves, and a broker
without privileges starts. No check depends on how long an action takes.
"""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import ctlrig
import started
from ctlrig import BROKERD
from started import LIMIT, expect, wait_for

LADDER = ['ebpf', 'schedstat', 'psi', 'stat', 'none']
FIGURES = {'run_ns', 'wait_ns', 'idle_wait_ns', 'n_waits', 'n_preemptions', 'n_involuntary',
           'n_throttled', 'n_migrations', 'p50_ns', 'p99_ns', 'max_ns', 'causers'}
CAUSER = {'comm', 'cgroup', 'pid', 'tenant', 'own', 'wait_ns', 'n_preemptions'}
CONTENTION = {'source', 'sentences', 'contended', 'factor', 'workers', 'workers_total', 'n_began',
              'began_ns', 'contended_ns', 'action', 'n_unwatched', 'n_dropped', 'n_probe_events',
              'probe_ns'}
OTHER_UID = 64123  # a uid without a user


class Broker(started.Broker):
    """brokerd without a GPU."""

    def __init__(self, *options, **about):
        super().__init__(BROKERD, '--socket-mode=0666', '--cache=none', '--calibration=none', '--gpu=none',
                         '--workers=2', *options, **about)


started.watch_all()


def as_user(uid):
    return {} if uid is None else {'user': uid, 'group': uid, 'extra_groups': []}


class Client(ctlrig.Client):
    """A client that runs tasks without a pause, in the background."""

    def __init__(self, broker, uid=None):
        super().__init__(broker, 'small', **as_user(uid))
        self.is_stopping = False
        self.run(10, 10)
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while not self.is_stopping:
            self.run(0, 20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_stopping = True
        self.thread.join()
        self.stop()


def ctl(broker, *arguments, uid=None):
    return ctlrig.ctl(broker, *arguments, **as_user(uid))


class Report:
    """brokerctl contention --json, parsed, with the members that are always present."""

    def __init__(self, broker, uid=None):
        found = [json.loads(line) for line in
                 ctl(broker, 'contention', '--json', uid=uid).splitlines()]
        of_type = lambda name: [entry for entry in found if entry['type'] == name]
        self.found = found
        self.contention, self.threads = of_type('contention'), of_type('thread')
        self.tenants = {tenant['name']: tenant for tenant in of_type('tenant')}
        self.workers = [thread for thread in self.threads if thread['role'] == 'worker']
        self.about = self.contention[0] if self.contention else None
        for about in self.contention:
            expect(CONTENTION <= set(about), about)
            expect(about['source'] in LADDER and about['action'] in ('act', 'observe'), about)
            expect(1 <= about['workers'] <= about['workers_total'] == 2, about)
            expect(about['factor'] >= 1, about)
            # A reset forgets neither the beginning of contention that lasts, nor contention that ends after the
            # reset.
            expect((about['began_ns'] is not None) == (about['n_began'] > 0 or about['contended'] or
                                                       about['contended_ns'] > 0), about)
        for thread in self.threads:
            expect(FIGURES | {'tid', 'name', 'role'} <= set(thread), thread)
            expect(thread['role'] in ('reactor', 'worker', 'other') and thread['tid'] > 0, thread)
        for tenant in self.tenants.values():
            expect(FIGURES | {'number', 'caused_ns', 'throttled_ns'} <= set(tenant), tenant)
        for subject in self.threads + list(self.tenants.values()):
            expect(len(subject['causers']) <= 3, subject)
            expect(all(CAUSER <= set(causer) for causer in subject['causers']), subject)


def check_source(asked):
    """Start a broker with one source. Return: the source that it uses."""
    with Broker(f'--contention={asked}') as broker, Client(broker):
        report = Report(broker)
        source, sentences = report.about['source'], report.about['sentences']
        first = LADDER[0] if asked == 'auto' else asked
        expect(LADDER.index(source) >= LADDER.index(first), asked, report.about)
        # A source that falls back says why, in the log as well.
        expect(source == first or sentences, asked, report.about)
        for sentence in sentences:
            expect(broker.says(sentence), sentence, broker.log())
        expect(broker.says('not watched' if source == 'none' else 'CPU contention: watched by'),
               broker.log())
        text = ctl(broker, 'contention')
        if source == 'none':
            expect(not report.threads and not report.tenants and 'not known' in text, text)
            return source
        # The thread that lists the workers may be late.
        is_listed = lambda report: (
            len([thread for thread in report.threads if thread['role'] == 'reactor']) == 1 and
            [worker['name'] for worker in report.workers] == ['rb-cpu-0', 'rb-cpu-1'] and
            'default' in report.tenants)
        report = wait_report(broker, is_listed, 'threads are not listed', report.found)
        text = ctl(broker, 'contention')
        expect('rb-cpu-0' in text and 'default' in text, text)
        if source in ('ebpf', 'schedstat'):
            # The client works, so the broker eventually reports run time of its tenant.
            def ran():
                report = Report(broker)
                return ('default' in report.tenants and report.tenants['default']['run_ns'] > 0 and
                        sum(worker['run_ns'] for worker in report.workers) > 0 and report)
            report = wait_for(ran, 'no causer was reported', report.found)
        is_known = source == 'ebpf'
        for subject in report.threads + list(report.tenants.values()):
            expect((subject['p99_ns'] is not None) == is_known, source, subject)
            expect(is_known or not subject['causers'], source, subject)
        return source


def wait_report(broker, condition, *what):
    def look():
        report = Report(broker)
        return condition(report) and report
    return wait_for(look, *what)


class Hogs:
    """Processes that compute on all processors."""

    def __init__(self):
        script = [sys.executable, '-c', f'import signal\nsignal.alarm({LIMIT})\n'
                  "open('/proc/self/comm', 'w').write('the-hog')\nwhile True: pass"]
        self.hogs = [subprocess.Popen(script) for _ in range(2 * os.cpu_count())]
        self.looks = [(time.monotonic(), 0)]

    def share(self):
        """Return the share of the processors' time over at least ten seconds; 1 until then."""
        ticks = 0
        for hog in self.hogs:
            with open(f'/proc/{hog.pid}/stat', encoding='utf-8') as file:
                ticks += sum(map(int, file.read().rpartition(')')[2].split()[11:13]))
        self.looks.append((time.monotonic(), ticks / os.sysconf('SC_CLK_TCK')))
        while len(self.looks) > 2 and self.looks[-1][0] - self.looks[1][0] >= 10:
            self.looks.pop(0)
        (begin, before), (end, now) = self.looks[0], self.looks[-1]
        return (now - before) / (end - begin) / os.cpu_count() if end - begin >= 10 else 1

    def end(self):
        for hog in self.hogs:
            hog.terminate()
        for hog in self.hogs:
            hog.wait(LIMIT)


def check_culprit():
    """Hogs are named, also in the log; a reset restarts the counts."""
    def names_hog(report):
        return any(causer['comm'] == 'the-hog' and not causer['own']
                   for worker in report.workers for causer in worker['causers'])

    with Broker('--contention=ebpf', policy='[broker]\ncontention-action = act\n') as broker:
        with Client(broker):
            hogs = Hogs()
            try:
                wait_report(broker, lambda report: report.about['contended'], 'no contention')
                # The report names three culprits. They may all be other processes if each of these computes
                # more than all hogs together.
                wait_report(broker, lambda report: names_hog(report) or hogs.share() < 0.2,
                            'the hog is not named')
                # No other device could take over the work, so the broker reduces its workers.
                wait_report(broker, lambda report: report.about['contended'] and
                            report.about['workers'] == 2, 'workers are missing')
                # Other processes on this machine may have contributed more than the hogs.
                wait_for(lambda: broker.says('the CPU is contended (most by '), broker.log())
                broker.write('[broker]\ncontention-action = observe\n')
                broker.process.send_signal(signal.SIGHUP)
                report = wait_report(broker, lambda report: report.about['action'] == 'observe',
                                     'it does not observe')
                expect(report.about['workers'] == 2, report.about)
            finally:
                hogs.end()
        report = Report(broker)
        expect(report.about['n_began'] > 0 and report.about['contended_ns'] > 0, report.about)
        ran = lambda report: sum(worker['run_ns'] for worker in report.workers)
        before = ran(report)
        expect(before > 0, report.workers)
        # No tenant runs tasks any more.
        ctl(broker, 'reset-stats', '--all')
        wait_report(broker, lambda report: ran(report) < before, 'no reset')


def check_tenants(source):
    """Each tenant sees its own delays, and of other tenants no more than /proc shows."""
    config = f'[tenant guest]\nmatch-uid = {OTHER_UID}\n'
    with Broker(f'--contention={source}', policy=config) as broker, Client(broker), \
            Client(broker, uid=OTHER_UID):
        report = wait_report(broker, lambda report: {'default', 'guest'} <= set(report.tenants),
                             'not both tenants')
        numbers = {name: tenant['number'] for name, tenant in report.tenants.items()}
        guest = Report(broker, uid=OTHER_UID)
        expect(not guest.contention and not guest.threads, guest.found)
        expect({name: tenant['number'] for name, tenant in guest.tenants.items()} ==
               {'guest': numbers['guest']}, guest.found)
        for causer in guest.tenants['guest']['causers']:
            expect(causer['tenant'] in (None, 'guest'), causer)
            expect(causer['pid'] is None or causer['own'] or causer['tenant'] == 'guest', causer)
        text = ctl(broker, 'contention', uid=OTHER_UID)
        expect('guest' in text and 'default' not in text and 'rb-cpu' not in text.split('Programs that ran')[0],
               text)


def check_unprivileged():
    """Without privileges the broker starts, and says which source it uses instead."""
    with Broker(uid=OTHER_UID) as broker, Client(broker):
        report = Report(broker)
        expect(report.about['source'] != 'ebpf' and report.about['sentences'], report.about)
        expect(broker.says(report.about['sentences'][0]), broker.log())


def check_options():
    for option, wanted in (('--contention=perf', 'auto, ebpf, schedstat, psi, stat or none'),
                           ('--contention-action=panic', 'act or observe'),
                           ('--contention', 'is missing its value')):
        result = subprocess.run([BROKERD, option], capture_output=True, text=True, check=False)
        expect(result.returncode == 2 and wanted in result.stderr, option, result.stderr)
    with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
        file.write('[broker]\ncontention = maybe\ncontention-action = no\n')
        file.flush()
        result = subprocess.run([BROKERD, '--check-config', '--config', file.name],
                                capture_output=True, text=True, check=False)
        expect(result.returncode == 1 and ':2: contention: ' in result.stderr and
               ':3: contention-action: ' in result.stderr, result.stderr)


def main():
    is_root = os.geteuid() == 0
    check_options()
    # The checks run in parallel, because they mostly wait for updates.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rungs = ['auto', *LADDER]
        used = dict(zip(rungs, pool.map(check_source, rungs)))
    print('used, by what was asked for:', used)
    expect(used['none'] == 'none', used)
    expect(used['auto'] == used['ebpf'], used)
    if used['ebpf'] == 'ebpf':
        check_culprit()
    else:
        print('no BPF here: who causes contention is not known')
    if is_root:
        check_tenants(used['auto'])
        check_unprivileged()
    else:
        print('not root: other users are not tried')


main()
