#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No allocation, system call, lock or log line on the hot path.

    hot-path.py ROOT BUILD ALLOW             checks the objects of every *-hot.c
    hot-path.py --self-test CC... -- ALLOW   compiles small files and checks what is caught

A symbol that such an object does not define must come from another hot object or from the allow-list
ALLOW. ALLOW has one symbol per line, for every hot object, or "PATH: SYMBOL" for one source; # starts a
comment.
"""
import os
import subprocess
import sys
import tempfile

import tree


def read_allowed(path):
    """Return the symbols by source; '' has those for every source."""
    allowed = {'': set()}
    with open(path, encoding='utf-8') as file:
        for line in file:
            line = line.split('#')[0].strip()
            source, _, symbol = line.rpartition(':')
            if symbol:
                allowed.setdefault(source.strip(), set()).add(symbol.strip())
    return allowed


def symbols(paths):
    """Return the symbols that each object imports, and all exported symbols."""
    out = subprocess.run(['nm', '-A', '-P', '-g', *paths], check=True, stdout=subprocess.PIPE).stdout
    used, defined = {path: set() for path in paths}, set()
    for line in out.decode().splitlines():
        path, _, symbol = line.rpartition(': ')
        name, kind = symbol.split()[:2]
        (used[path] if kind in 'Uvw' else defined).add(name.split('@')[0])
    return used, defined


def check_objects(objects, allowed):
    """Return the problems of the (source, object) pairs in @objects."""
    problems = []
    used, defined = symbols([path for _, path in objects])
    for source, path in objects:
        unknown = used[path] - defined - allowed[''] - allowed.get(source, set())
        problems += [f'{source}: uses {symbol}, which tests/house/hot-path.allow does not list'
                     for symbol in sorted(unknown)]
    for source in sorted(allowed.keys() - {''}):
        if source not in {pair[0] for pair in objects}:
            problems.append(f'{source}: listed in tests/house/hot-path.allow, but not there')
    return problems


def objects_of(build, source):
    """Return the source's objects, below the build folder of the meson.build that names the source."""
    name = os.path.basename(source) + '.o'
    top = os.path.join(build, os.path.dirname(source))
    found = []
    for folder, _, names in os.walk(top):
        found += [os.path.join(folder, n) for n in sorted(names) if n == name]
    return found


def main():
    if sys.argv[1] == '--self-test':
        split = sys.argv.index('--')
        self_test(sys.argv[2:split], read_allowed(sys.argv[split + 1]))
    root, build, allow = sys.argv[1:]
    sources = [path for path in tree.files(root) if path.endswith('-hot.c')
               and path.split('/')[0] in ('broker', 'libclient', 'shm')]
    objects, problems = [], []
    for source in sources:
        found = objects_of(build, source)
        if not found:
            problems.append(f'{source} was not compiled')
        objects += [(source, path) for path in found]
    problems += check_objects(objects, read_allowed(allow))
    tree.report(problems, len(objects), 'hot objects')


CASES = [
    ('memcpy', '#include <string.h>\nvoid f(void *a, void *b, unsigned long n)'
     '{ memcpy(a, b, n); }', None),
    ('malloc', '#include <stdlib.h>\nvoid *f(void) { return malloc(8); }', 'malloc'),
    ('free', '#include <stdlib.h>\nvoid f(void *p) { free(p); }', 'free'),
    ('write', '#include <unistd.h>\nlong f(void) { return write(1, "a", 1); }', 'write'),
    ('syscall', '#define _GNU_SOURCE\n#include <unistd.h>\nlong f(void)'
     '{ return syscall(39); }', 'syscall'),
    ('lock', '#include <pthread.h>\nint f(pthread_mutex_t *m)'
     '{ return pthread_mutex_lock(m); }', 'pthread_mutex_lock'),
    ('log', 'void log_line(int, const char *, ...);\nvoid f(void) { log_line(3, "a"); }',
     'log_line'),
    ('print', '#include <stdio.h>\nvoid f(int a) { printf("%d", a); }', 'printf'),
    ('other', 'int somewhere_else(void);\nint f(void) { return somewhere_else(); }',
     'somewhere_else'),
    ('allowed elsewhere', '#include <stdlib.h>\nvoid f(void) { abort(); }', 'abort'),
    ('hot to hot', 'int hot_friend(void);\nint f(void) { return hot_friend(); }', None),
]


def self_test(compiler, allowed):
    n_failed = 0
    with tempfile.TemporaryDirectory() as folder:
        friend = os.path.join(folder, 'friend-hot.c.o')
        subprocess.run([*compiler, '-O2', '-x', 'c', '-c', '-o', friend, '-'], check=True,
                       input=b'int hot_friend(void) { return 1; }\n')
        for name, text, expected in CASES:
            path = os.path.join(folder, 'case-hot.c.o')
            subprocess.run([*compiler, '-O2', '-fPIC', '-x', 'c', '-c', '-o', path, '-'],
                           check=True, input=text.encode() + b'\n')
            # Only the symbols that are allowed in every source, and those of a source of another name.
            here = {'': allowed[''], 'friend-hot.c': {'abort'}}
            problems = check_objects([('case-hot.c', path), ('friend-hot.c', friend)], here)
            good = not problems if expected is None else \
                len(problems) == 1 and f'uses {expected},' in problems[0]
            if not good:
                n_failed += 1
                print(f'{name}: expected {expected}, got {problems}')
    print(f'{len(CASES)} cases, {n_failed} failed')
    sys.exit(1 if n_failed else 0)


if __name__ == '__main__':
    main()
