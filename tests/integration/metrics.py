#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerd's metrics, from outside.

    metrics.py BROKERD STATS_CLIENT DOC endpoint [gzip]  sockets, permissions, reloads, ends, figures
    metrics.py BROKERD STATS_CLIENT DOC prometheus  scraped by Debian's prometheus, which is asked then
    metrics.py BROKERD STATS_CLIENT DOC promtool    a scrape, alerts and dashboard as promtool sees them

The last two are skipped without prometheus.
"""
import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from started import LIMIT, expect, start, wait_for

BROKERD, CLIENT, DOC = sys.argv[1:4]
HAS_GZIP = sys.argv[5:] == ['gzip']
SKIPPED, USAGE = 77, 2
OPEN = 'application/openmetrics-text'
# The name of a plan, which clients choose.
NAME = 'zzz"} 1_evil_name'


def free_port():
    """Return a port of the loopback address without a listener, which the kernel does not assign soon."""
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        return taken.getsockname()[1]


class Broker:
    def __init__(self, folder, *options, policy=None, contention='none'):
        self.folder = folder
        self.socket = os.path.join(folder, 'sock')
        self.log_path = os.path.join(folder, 'log')
        if policy is not None:
            self.write_policy(policy)
            options = ['--config', os.path.join(folder, 'conf'), *options]
        with open(self.log_path, 'wb') as log:
            self.process = start(
                [BROKERD, '--socket', self.socket, '--cache', folder, '--calibration', 'none',
                 '--gpu', 'none', '--contention', contention, *options], stderr=log)

    def write_policy(self, text):
        with open(os.path.join(self.folder, 'conf'), 'w', encoding='ascii') as file:
            file.write(text)

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as log:
            return log.read()

    def wait_log(self, text):
        wait_for(lambda: text in self.log() or self.process.poll() is not None, 'no ' + text)
        expect(text in self.log(), 'the log says', self.log())

    def start(self):
        self.wait_log('serving metrics for Prometheus on ')
        return self

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        status = self.process.wait(LIMIT)
        expect(status == (0 if how == signal.SIGTERM else -how), 'ended with', status, self.log())


class Client:
    def __init__(self, broker):
        self.process = start([CLIENT, broker.socket, NAME], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)

    def run(self, small, large):
        self.process.stdin.write(f'{small} {large}\n')
        self.process.stdin.flush()
        expect(self.process.stdout.readline() == 'ok\n', 'the client failed')

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(LIMIT)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__('localhost', timeout=LIMIT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self.path)


def scrape(path, accept='text/plain', coding=None):
    """Return the text of a scrape, which was sent as @coding."""
    connection = UnixConnection(path)
    codings = {'Accept-Encoding': coding} if coding else {}
    connection.request('GET', '/metrics', headers={'Accept': accept, **codings})
    response = connection.getresponse()
    body = response.read()
    expect(response.getheader('Content-Encoding') == coding, response.getheader('Content-Encoding'), coding)
    text = (gzip.decompress(body) if coding else body).decode('ascii')
    expect(response.status == 200, response.status, text)
    expect(response.getheader('Content-Type').startswith(accept), response.getheader('Content-Type'))
    connection.close()
    return text


def values(text):
    """Return {series: value}; each series occurs once."""
    found = {}
    for line in text.splitlines():
        if not line.startswith('#'):
            series, value = line.rsplit(' ', 1)
            expect(series not in found, series, 'is there twice')
            found[series] = float(value)
    return found


def total(found, name):
    return sum(value for series, value in found.items() if series.split('{')[0] == name)


# ---- What is served ----

def check_figures(broker, path):
    client = Client(broker)
    client.run(100, 10)
    tasks = 'ringbroker_tenant_tasks_total'
    # A page that is copied during an update mixes two moments, so repeat until the figures agree.
    found = wait_for(
        lambda: (lambda now: total(now, tasks) == 110
                 and total(now, 'ringbroker_device_tasks_total') == 110
                 and total(now, 'ringbroker_tenant_device_tasks_total') == 110
                 and now['ringbroker_sessions'] == 1
                 and now['ringbroker_tenant_sessions{tenant="default"}'] == 1 and now)(values(scrape(path))),
        lambda: f'not 110 tasks of one session: {scrape(path)}')
    expect(abs(found['ringbroker_start_time_seconds'] - time.time()) < LIMIT, found)
    queued = found['ringbroker_tenant_latency_seconds_count{tenant="default"}']
    inline = found['ringbroker_tenant_inline_tasks_total{tenant="default"}']
    expect(queued + inline == 110, queued, inline)
    # A string that a client chose never becomes a series or a label.
    text = scrape(path, OPEN)
    expect(NAME not in text and NAME.split('"')[1] not in text, text)
    expect(text.endswith('# EOF\n'), text[-100:])
    n_series = len(values(text))
    more = [Client(broker) for _ in range(3)]
    for other in more:
        other.run(5, 1)
    wait_for(lambda: values(scrape(path))['ringbroker_sessions'] == 4, 'no other sessions')
    expect(len(values(scrape(path, OPEN))) == n_series, 'clients made series')
    check_process(broker, values(scrape(path)))
    if HAS_GZIP:
        check_gzip(path)
    for other in [client, *more]:
        other.stop()
    wait_for(lambda: values(scrape(path))['ringbroker_sessions'] == 0, 'sessions stay')
    expect(total(values(scrape(path)), tasks) == 128, 'counts are gone with the session')


def check_gzip(path):
    """A compressed scrape is byte for byte the uncompressed one, unless there was an update between them."""
    for accept in ('text/plain', OPEN):
        wait_for(lambda: scrape(path, accept) == scrape(path, accept, 'gzip'), 'gzip changes', accept)


def check_process(broker, found):
    """The process's own figures are those that /proc has."""
    with open(f'/proc/{broker.process.pid}/limits', encoding='ascii') as file:
        limit = re.search(r'^Max open files +(\d+)', file.read(), re.MULTILINE).group(1)
    expect(found['process_max_fds'] == int(limit), found['process_max_fds'], limit)
    n_fds = len(os.listdir(f'/proc/{broker.process.pid}/fd'))
    expect(abs(found['process_open_fds'] - n_fds) <= 4, found['process_open_fds'], n_fds)
    expect(0 < found['process_resident_memory_bytes'] < found['process_virtual_memory_bytes'], found)
    expect(found['process_cpu_seconds_total'] > 0, found)
    expect(abs(found['process_start_time_seconds'] - found['ringbroker_start_time_seconds']) < LIMIT, found)


def switches(broker):
    """Return how often the broker's threads stopped running; idle threads add nothing."""
    n, folder = 0, f'/proc/{broker.process.pid}/task'
    for thread in os.listdir(folder):
        # ThreadSanitizer has a thread that wakes every 100 ms and is named as the process.
        with open(f'{folder}/{thread}/comm', encoding='ascii') as file:
            if int(thread) != broker.process.pid and file.read().strip() == 'brokerd':
                continue
        with open(f'{folder}/{thread}/status', encoding='ascii') as file:
            n += sum(int(line.split()[1]) for line in file if 'ctxt_switches' in line)
    return n


def check_idle(broker, path):
    """Without scrapes the broker stays idle, and the next scrape has no outdated figures."""
    def is_still():
        before = switches(broker)
        time.sleep(1)
        return switches(broker) == before

    wait_for(is_still, 'an endpoint without scrapes keeps the broker busy')
    client = Client(broker)
    client.run(30, 3)
    found = values(scrape(path))
    expect(found['ringbroker_sessions'] == 1, found['ringbroker_sessions'])
    expect(total(found, 'ringbroker_tenant_tasks_total') == 33, found)
    # The scrape makes the broker update its figures again.
    wait_for(lambda: values(scrape(path))['ringbroker_statistics_updated_timestamp_seconds']
             > found['ringbroker_statistics_updated_timestamp_seconds'], 'no updates')
    client.stop()


def check_endpoint(folder):
    path = os.path.join(folder, 'metrics.sock')
    policy = f'[broker]\nmetrics = unix:{path}\n'
    # The policy file names the socket; the group is one that this user may assign.
    broker = Broker(folder, '--admin-group', str(os.getgid()), policy=policy).start()
    status = os.stat(path)
    expect(stat.S_IMODE(status.st_mode) == 0o660 and status.st_gid == os.getgid(), status)
    check_idle(broker, path)
    broker.stop()
    broker = Broker(folder, '--admin-group', str(os.getgid()), policy=policy).start()
    check_figures(broker, path)

    # After the policy is read again the endpoint works as before; the log says that a new address needs a
    # restart.
    broker.write_policy(policy + '[tenant web]\nmatch-uid = 12345\n')
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_log('new tenants: web')
    before = values(scrape(path))['ringbroker_tenants']
    expect(before == 2 or wait_for(lambda: values(scrape(path))['ringbroker_tenants'] == 2, 'no web'), before)
    broker.write_policy(f'[broker]\nmetrics = unix:{path}.other\n')
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_log('keys changed that take effect at the next start (brokerctl restart): metrics')
    expect(not os.path.exists(path + '.other'), 'it was moved')
    broker.write_policy('[broker]\nmetrics = 0.0.0.0:9469\n')
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_log('the old policy stays in force')
    expect('an address that only this machine can reach' in broker.log(), broker.log())
    scrape(path)

    # A second broker with the same address does not start, and the first one is not disturbed.
    other = tempfile.mkdtemp(dir=folder)
    second = Broker(other, '--metrics', 'unix:' + path)
    expect(second.process.wait(LIMIT) == USAGE, second.log())
    expect(f'another program listens on unix:{path}' in second.log(), second.log())
    scrape(path)

    # The broker is killed and started again over the remaining socket. Then it ends while clients are
    # connected.
    broker.stop(signal.SIGKILL)
    expect(os.path.exists(path), 'the socket is gone')
    broker = Broker(folder, '--metrics', 'unix:' + path).start()
    held = []
    for i in range(12):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].connect(path)
        held[-1].sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n' if i % 2 else b'GET /met')
    broker.stop()
    expect(not os.path.exists(path), 'the socket stays')

    # The endpoint is a TCP port, once in use and once free.
    port = free_port()
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', port))
        taken.listen()
        broker = Broker(folder, '--metrics', f'127.0.0.1:{port}')
        expect(broker.process.wait(LIMIT) == USAGE, broker.log())
        expect(f'another program listens on 127.0.0.1:{port}' in broker.log(), broker.log())
    broker = Broker(folder, '--metrics', f'127.0.0.1:{port}').start()
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=LIMIT) as answer:
        expect(b'ringbroker_build_info' in answer.read(), 'no metrics')
    broker.stop()
    broker = Broker(folder, '--metrics', f'127.0.0.1:{port}').start()
    broker.stop()
    for address, text in (('192.168.1.1:9469', 'an address that only this machine can reach'),
                          ('unix:/nowhere/sock', 'the folder does not exist')):
        broker = Broker(folder, '--metrics', address)
        expect(broker.process.wait(LIMIT) == USAGE and text in broker.log(), broker.log())


# ---- Prometheus ----

def needed(program):
    path = shutil.which(program)
    if not path:
        print(f'skipped: {program} is not installed')
        sys.exit(SKIPPED)
    return path


def query(port, expression):
    """Return [(labels, value)], or None while Prometheus does not answer."""
    url = f'http://127.0.0.1:{port}/api/v1/query?' + urllib.parse.urlencode({'query': expression})
    try:
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            found = json.load(answer)
    except (OSError, urllib.error.URLError):
        return None
    expect(found['status'] == 'success', found)
    return [(entry['metric'], float(entry['value'][1])) for entry in found['data']['result']]


def check_prometheus(folder):
    prometheus = needed('prometheus')
    port, own = free_port(), free_port()
    broker = Broker(folder, '--metrics', f'127.0.0.1:{port}').start()
    client = Client(broker)
    client.run(100, 10)
    with open(os.path.join(DOC, 'prometheus.yml'), encoding='ascii') as file:
        config = file.read()
    # This is the example with shorter intervals.
    config = config.replace('127.0.0.1:9469', f'127.0.0.1:{port}').replace('15s', '500ms')
    config = config.replace('ringbroker.rules.yml', os.path.join(DOC, 'ringbroker.rules.yml'))
    path = os.path.join(folder, 'prometheus.yml')
    with open(path, 'w', encoding='ascii') as file:
        file.write(config)
    log = open(os.path.join(folder, 'prometheus.log'), 'wb')
    process = start(
        [prometheus, '--config.file', path, '--storage.tsdb.path', os.path.join(folder, 'data'),
         '--web.listen-address', f'127.0.0.1:{own}', '--storage.tsdb.retention.time', '1h'],
        stdout=log, stderr=log, env={**os.environ, 'GOMAXPROCS': '1'})
    try:
        def asked(expression, expected):
            wait_for(lambda: [value for _, value in query(own, expression) or []] == [expected],
                     lambda: f'{expression} is not {expected}: {query(own, expression)}')

        asked('up{job="ringbroker"}', 1)
        asked('sum(ringbroker_tenant_tasks_total)', 110)
        asked('sum(ringbroker_device_tasks_total)', 110)
        client.run(50, 5)
        asked('sum(ringbroker_tenant_tasks_total{tenant="default"})', 165)
        asked('ringbroker_device_info{device="0",kind="cpu"}', 1)
        # On a busy machine a scrape may time out, and its samples are missing.
        (_, p99), = wait_for(
            lambda: query(own, 'histogram_quantile(0.99, ringbroker_tenant_latency_seconds_bucket)'),
            'no latency')
        expect(0 < p99 < 20, p99)
        # Prometheus scrapes OpenMetrics without the series that the example drops. The rest is as many series
        # as the plain text has.
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics', timeout=LIMIT) as answer:
            n_series = len(values(answer.read().decode('ascii')))
        asked('count({__name__=~"(ringbroker|process)_.*"})', n_series)
        with urllib.request.urlopen(f'http://127.0.0.1:{own}/api/v1/rules', timeout=LIMIT) as answer:
            rules = json.load(answer)['data']['groups'][0]['rules']
        expect(len(rules) > 10, rules)
        expect(not [alert for rule in rules for alert in rule['alerts'] if alert['state'] == 'firing'],
               rules)
        # Prometheus notices that the broker has ended.
        broker.stop()
        asked('up{job="ringbroker"}', 0)
        client.stop()
    finally:
        process.terminate()
        process.wait(LIMIT)
        log.close()


def run(*command, text=None):
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=LIMIT, check=False)
    expect(result.returncode == 0, *command, 'says', result.stdout)
    return result.stdout


def check_promtool(folder):
    promtool = needed('promtool')
    path = os.path.join(folder, 'metrics.sock')
    broker = Broker(folder, '--metrics', 'unix:' + path, contention='auto').start()
    client = Client(broker)
    client.run(100, 10)
    said = run(promtool, 'check', 'metrics', text=scrape(path))
    expect(said == '', said)
    client.stop()
    broker.stop()
    run(promtool, 'check', 'rules', os.path.join(DOC, 'ringbroker.rules.yml'))
    run(promtool, 'test', 'rules', os.path.join(DOC, 'ringbroker.rules-test.yml'))
    run(promtool, 'check', 'config', os.path.join(DOC, 'prometheus.yml'))

    # Each alert has a test in which it fires, and one in which it does not.
    with open(os.path.join(DOC, 'ringbroker.rules.yml'), encoding='ascii') as file:
        alerts = re.findall(r'- alert: (\w+)', file.read())
    with open(os.path.join(DOC, 'ringbroker.rules-test.yml'), encoding='ascii') as file:
        tests = file.read()
    for alert in alerts:
        expect(re.search(rf'alertname: {alert}\n +exp_alerts:', tests), alert, 'is never seen to fire')
        expect(re.search(rf'alertname: {alert}}}', tests), alert, 'is never seen to be silent')

    # Write the dashboard's queries as rules, the form in which promtool reads queries.
    with open(os.path.join(DOC, 'grafana-dashboard.json'), encoding='ascii') as file:
        board = json.load(file)
    asked = [target['expr'] for panel in board['panels'] for target in panel.get('targets', [])]
    asked += [entry['expr'] for entry in board['annotations']['list']]
    asked = [re.sub(r'\$__\w+', '5m', text).replace('$instance', '.*').replace('$tenant', '.*')
             for text in asked]
    rules = {'groups': [{'name': 'dashboard', 'rules': [
        {'record': f'dashboard:{i}', 'expr': text} for i, text in enumerate(asked)]}]}
    path = os.path.join(folder, 'rules.yml')
    with open(path, 'w', encoding='ascii') as file:
        # JSON is valid YAML.
        json.dump(rules, file)
    run(promtool, 'check', 'rules', path)


with tempfile.TemporaryDirectory(prefix='rbk-metrics-') as place:
    {'endpoint': check_endpoint, 'prometheus': check_prometheus,
     'promtool': check_promtool}[sys.argv[4]](place)
print('all is as it should be')
