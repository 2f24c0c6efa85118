#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Install into a folder, build the README's program against it, and run the program with the installed
brokerd.

    installed.py BUILD FIRST_PROGRAM CC...

The test also checks the list of installed files, with all documents and example programs of the source tree,
that links between documents and from alerts are right, that the library exports its own names only, and that
tools/package shows its progress. Exit status 77 if pkg-config is missing.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from started import await_listening

LIMIT = 60
EXPECTED = '0 11 22 33 on device 0\n'


def run(command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
                            check=False, **options)
    output = result.stdout.decode(errors='replace')
    if result.returncode:
        print(f'{" ".join(command)}: status {result.returncode}\n{output}')
        sys.exit(1)
    return output


def installed_files(top):
    return {os.path.relpath(os.path.join(folder, name), top): os.path.join(folder, name)
            for folder, _, names in os.walk(top) for name in names}


def find(files, end):
    found = [path for name, path in files.items() if name.endswith(end)]
    if not found:
        print(f'{end} is not installed; there are: {" ".join(sorted(files))}')
        sys.exit(1)
    return found[0]


def check_documents(files, source):
    """Each document and example program is installed, and so is each file that a document links to."""
    place = 'share/doc/ringbroker/'
    tops = {name.split(place)[0] for name in files if place in name}
    expected = ['README.md', 'CHANGELOG.md', 'SECURITY.md', 'HACKING.md', 'CONTRIBUTING.md',
                'examples/first-program.c']
    expected += ['doc/' + name for name in os.listdir(os.path.join(source, 'doc')) if name.endswith('.md')]
    expected += ['examples/' + name for name in os.listdir(os.path.join(source, 'doc/examples')) if '.' in name]
    top, = tops
    missing = [name for name in expected if top + place + name not in files]
    for name, path in files.items():
        if not name.startswith(top + place) or not name.endswith('.md'):
            continue
        with open(path, encoding='utf-8') as file:
            text = file.read()
        links = [link for link in re.findall(r'\]\(([^)#\s]+)', text) if '://' not in link]
        # Debian's packages have the license in their file "copyright".
        missing += [f'{link}, of {name}' for link in links if link != 'LICENSE' and
                    os.path.normpath(os.path.join(os.path.dirname(name), link)) not in files]
    with open(find(files, '/ringbroker.rules.yml'), encoding='utf-8') as file:
        missing += {path for path in re.findall(r'runbook_url: file://(.*)#', file.read()) if path[1:] not in files}
    if missing:
        print('not installed:', *missing, sep='\n  ')
        sys.exit(1)


def check_progress(source):
    """tools/package prints each step with its number and its time, and the end of the log if the build fails."""
    with tempfile.TemporaryDirectory() as top:
        os.mkdir(f'{top}/tools')
        os.mkdir(f'{top}/bin')
        shutil.copy(os.path.join(source, 'tools/package'), f'{top}/tools/package')
        shutil.copy(os.path.join(source, 'meson.build'), top)
        with open(f'{top}/meson.build', encoding='utf-8') as file:
            version = re.search(r"^  version: '(.*)',$", file.read(), re.MULTILINE)[1]
        scripts = {'dpkg-parsechangelog': f'echo {version}', 'lintian': 'test -e "$6"', 'git': 'exit 1',
                   'dh': 'exit 0', 'dpkg-checkbuilddeps':
                   'test ! -e unmet || { echo "dpkg-checkbuilddeps: error: Unmet build dependencies: meson" >&2; exit 1; }',
                   'dpkg-buildpackage': 'echo "[1/2] cc"; echo odd; touch ../a.deb ../a.changes; test ! -e fail'}
        for name, script in scripts.items():
            with open(f'{top}/bin/{name}', 'w', encoding='ascii') as file:
                file.write(f'#!/bin/sh\n{script}\n')
            os.chmod(f'{top}/bin/{name}', 0o755)
        env = dict(os.environ, PATH=f'{top}/bin:{os.environ["PATH"]}')
        output = run([f'{top}/tools/package', '--no-install'], env=env)
        steps = re.findall(r'^step (\d) of (\d): .+\n  (?:done in \d+ s|left out: --no-install)$', output,
                           re.MULTILINE)
        if steps != [(str(i), '4') for i in range(1, 5)] or not output.endswith('/build-package/a.deb\n'):
            print('tools/package says', output)
            sys.exit(1)
        with open(f'{top}/fail', 'wb'):
            pass
        result = subprocess.run([f'{top}/tools/package', '--no-install'], env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=LIMIT, check=False, text=True)
        if result.returncode != 1 or '\nodd\ntools/package: the build failed; ' not in result.stdout:
            print('tools/package, whose build fails, says', result.returncode, result.stdout)
            sys.exit(1)
        with open(f'{top}/unmet', 'wb'):
            pass
        result = subprocess.run([f'{top}/tools/package', '--no-install'], env=env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, timeout=LIMIT, check=False, text=True)
        wanted = 'tools/package: these are missing: meson; run tools/install-deps --package\n'
        if result.returncode != 2 or result.stderr != wanted:
            print('tools/package, without a package, says', result.returncode, result.stderr)
            sys.exit(1)


def has_onnx(files):
    return any(name.endswith('/ringbroker/onnx.h') for name in files)


def main():
    build, program, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not shutil.which('pkg-config'):
        print('pkg-config is not installed')
        sys.exit(77)
    source = os.path.dirname(os.path.dirname(os.path.abspath(program)))
    check_progress(source)
    with tempfile.TemporaryDirectory() as top:
        run(['meson', 'install', '-C', build, '--no-rebuild', '--destdir', top])
        files = installed_files(top)
        library = find(files, '/libringbroker.so.0')
        brokerd = find(files, 'bin/brokerd')
        for name in ('/ringbroker.h', '/ringbroker/abi.h', '/ringbroker/stats.h',
                     '/libringbroker.so', '/bin/brokerctl', '/man1/brokerctl.1', '/man8/brokerd.8',
                     '/man5/brokerd.conf.5', '/man5/ringbroker-profile.5',
                     '/ringbroker/examples/brokerd.conf'):
            find(files, name)
        check_documents(files, source)
        examples = sorted(path for name, path in files.items() if '/ringbroker/examples/' in name
                          and name.endswith('.c') and (has_onnx(files) or not name.endswith('onnx-model.c')))

        exported = {line.split()[-1].split('@')[0] for line in
                    run(['nm', '-D', '--defined-only', library]).splitlines()}
        foreign = sorted(name for name in exported if not name.startswith(('rbk_', 'RINGBROKER_')))
        if foreign or 'rbk_connect' not in exported:
            print(f'{len(exported)} symbols are exported, which are not ours: {foreign}')
            sys.exit(1)

        env = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=top, LC_ALL='C',
                   PKG_CONFIG_PATH=os.path.dirname(find(files, '/ringbroker.pc')),
                   LD_LIBRARY_PATH=os.path.dirname(library), RINGBROKER_SOCKET=f'{top}/socket')
        flags = run(['pkg-config', '--cflags', '--libs', 'ringbroker'], env=env).split()
        shutil.copy(find(files, '/examples/first-program.c'), f'{top}/first-program.c')
        run([*compiler, '-std=c17', '-Wall', '-Wextra', '-Werror', 'first-program.c', '-o', 'first',
             *flags], cwd=top, env=env)

        # The examples need no header that is not installed. Test "documents" links and runs them.
        find(files, '/ringbroker/examples/event-loop.c')
        headers = run(['pkg-config', '--cflags', 'ringbroker'], env=env).split()
        run([*compiler, '-std=c17', '-Wall', '-Wextra', '-Werror', '-fsyntax-only', *headers, *examples], env=env)

        # Build against the build tree, too, as HACKING.md describes.
        tree = dict(os.environ, PKG_CONFIG_PATH=os.path.join(build, 'meson-uninstalled'))
        flags = run(['pkg-config', '--cflags', '--libs', 'ringbroker'], env=tree).split()
        run([*compiler, '-std=c17', '-Wall', '-Wextra', '-Werror', 'first-program.c', '-o', 'tree',
             *flags], cwd=top, env=tree)

        # Without a broker the program prints one line and does not hang.
        result = subprocess.run([f'{top}/first'], env=env, timeout=LIMIT, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if result.returncode == 0 or result.stderr.count(b'\n') != 1 or result.stdout:
            print(f'without a broker: status {result.returncode}, {result.stderr}')
            sys.exit(1)

        with open(f'{top}/log', 'wb') as log:
            broker = subprocess.Popen([brokerd, '--gpu=none', '--cache=none'], env=env, stderr=log)
            try:
                await_listening(broker, log.name, LIMIT)
                output = run([f'{top}/first'], env=env)
            finally:
                broker.send_signal(signal.SIGTERM)
                try:
                    status = broker.wait(LIMIT)
                except subprocess.TimeoutExpired:
                    broker.kill()
                    status = 'killed: it did not stop'
        with open(f'{top}/log', encoding='utf-8') as log:
            print(log.read(), end='')
        print(output, end='')
        if output != EXPECTED or status != 0:
            print(f'expected {EXPECTED!r}, and brokerd to end with 0: {status}')
            sys.exit(1)
        if os.path.exists(f'{top}/socket'):
            print('brokerd left its socket behind')
            sys.exit(1)


if __name__ == '__main__':
    main()
