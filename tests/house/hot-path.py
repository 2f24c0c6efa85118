#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No allocation, system call, lock or log line on the hot path.

    hot-path.py ROOT BUILD ALLOW             checks the objects of every *-hot.c
    hot-path.py --self-test CC... -- ALLOW   compiles small files and checks what is caught

What such an object does not define itself it may only take from another hot object or from the
allow-list ALLOW: one symbol a line, # starts a comment.
"""
import os
import subprocess
import sys
import tempfile

import tree


def read_allowed(path):
    with open(path, encoding='utf-8') as file:
        return {line.split('#')[0].strip() for line in file} - {''}


def symbols(path, *options):
    out = subprocess.run(['nm', *options, path], check=True, stdout=subprocess.PIPE).stdout
    return {line.split()[-1].split('@')[0] for line in out.decode().splitlines() if line.split()}


def check_objects(objects, allowed):
    problems = []
    defined = set()
    for path in objects:
        defined |= symbols(path, '--defined-only', '-g')
    for path in objects:
        for symbol in sorted(symbols(path, '-u') - defined - allowed):
            problems.append(f'{os.path.basename(path)}: uses {symbol}, '
                            'which tests/house/hot-path.allow does not list')
    return problems


def objects_of(build, source):
    name = os.path.basename(source) + '.o'
    found = []
    for folder, folders, names in os.walk(build):
        folders[:] = [f for f in folders if f not in ('meson-private', 'meson-logs')]
        # meson flattens a path into the name: "src_x-hot.c.o".
        found += [os.path.join(folder, n) for n in names if n == name or n.endswith('_' + name)]
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
        objects += found
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
            problems = check_objects([path, friend], allowed)
            good = not problems if expected is None else \
                len(problems) == 1 and f'uses {expected},' in problems[0]
            if not good:
                n_failed += 1
                print(f'{name}: expected {expected}, got {problems}')
    print(f'{len(CASES)} cases, {n_failed} failed')
    sys.exit(1 if n_failed else 0)


if __name__ == '__main__':
    main()
