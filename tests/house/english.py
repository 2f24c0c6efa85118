#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Comments have a subject, and name the person or thing that they speak of.

    english.py ROOT              checks the comments of C, GLSL, Python, shell and meson.build
    english.py --self-test       checks that each rule finds what it forbids
    english.py --count ROOT      counts comments by room, and those that break a rule
    english.py --sample N ROOT   prints N comments drawn with a fixed seed, with the code below each

A comment must not begin with a clause without a subject ("What is left", "Of these"), nor say "nobody",
"somebody", "anybody" or "everybody": the program, thread, client or tenant has a name.
"""
import collections
import random
import re
import sys

import tree

SLASHED = ('.c', '.h', '.comp', '.glsl', '.pml')
HASHED = ('.py', '.sh', '.build')
HEADLESS = re.compile(r"(What|Who|Whom|Whose|Whoever|Whatever|Of|Those|How|Which|Else|Once for)\b(?!')")
PERSON = re.compile(r'\b(no|some|any|every)body\b', re.IGNORECASE)
HASH = re.compile(r'^[ \t]*#(?!!)[ \t]?(.*)$')
SEED = 20
CODE_LINES = 8


def slashed(text):
    """Yield line and text of each comment of C or GLSL; adjacent // lines are one comment."""
    last = None
    for match in tree.COMMENT_OR_LITERAL.finditer(text):
        token = match.group()
        if not token.startswith('/'):
            continue
        line = text.count('\n', 0, match.start()) + 1
        words = ' '.join(re.sub(r'^[ \t]*\*+[ \t]?', '', part).strip(' \t*/')
                         for part in token.strip('/').split('\n')).strip()
        is_whole = not text[text.rfind('\n', 0, match.start()) + 1:match.start()].strip()
        if last and token.startswith('//') and is_whole and last[2] == line - 1:
            last = (last[0], f'{last[1]} {words}', line)
            continue
        if last:
            yield last[:2]
        last = (line, words, line if token.startswith('//') and is_whole else 0)
    if last:
        yield last[:2]


def hashed(text):
    """Yield line and text of each block of lines that are comments of Python, shell or meson."""
    begin, block = 0, []
    for line, content in enumerate(text.split('\n') + [''], 1):
        match = HASH.match(content)
        if match:
            begin = begin if block else line
            block.append(match.group(1))
        elif block:
            yield begin, ' '.join(block).strip()
            block = []


def comments(root):
    """Yield path, line and text of each comment of the tree but the licence's."""
    for path in tree.files(root):
        is_script = '.' not in path.rpartition('/')[2]
        if not path.endswith(SLASHED + HASHED) and not is_script:
            continue
        text = tree.read(root, path)
        if is_script and not text.startswith('#!'):
            continue
        for line, words in (slashed if path.endswith(SLASHED) else hashed)(text):
            if words and 'SPDX-License-Identifier' not in words:
                yield path, line, words


def broken(words):
    """Return the rule that a comment breaks, or None."""
    match = HEADLESS.match(words)
    if match:
        return f'a comment begins with "{match.group()}": name the subject'
    match = PERSON.search(words)
    return match and f'"{match.group()}": name the program, thread, client or tenant'


def check(root):
    return [f'{path}:{line}: {rule}' for path, line, words in comments(root) if (rule := broken(words))]


def count(root):
    total, bad = collections.Counter(), collections.Counter()
    for path, _, words in comments(root):
        room = '/'.join(path.split('/')[:2]) if path.count('/') > 1 else path.split('/')[0]
        total[room] += 1
        bad[room] += broken(words) is not None
    for room in sorted(total):
        print(f'{room:24}{total[room]:7}{bad[room]:7}')
    print(f'{"all":24}{total.total():7}{bad.total():7}')


def sample(n, root):
    drawn = random.Random(SEED).sample(list(comments(root)), n)
    for path, line, _ in sorted(drawn):
        print(f'{path}:{line}')
        print('\n'.join('    ' + text for text in tree.read(root, path).split('\n')[line - 1:line + CODE_LINES]), end='\n\n')


# The words are split where a plain search of this file would take them for comments of its own.
CASES = [
    ('good', {'a.c': '/* Evict the plan. What follows loads it. */\nint what; // how\n'}, None),
    ('what', {'a.c': 'int a; /* Wh' 'at is left. */\n'}, 'begins with "What"'),
    ('of', {'a.h': '/*\n * Of these, the first.\n */\n'}, 'a.h:1: a comment begins with "Of"'),
    ('slashes', {'a.glsl': '// The sum,\n// Tho' 'se of others.\nint a; // Tho' 'se of others.\n'}, 'a.glsl:3: '),
    ('one comment', {'a.comp': '// The sum,\n// Tho' 'se of others.\n'}, None),
    ('hash', {'meson.build': "a = 'b'\n# Who waits.\n"}, 'meson.build:2'),
    ('script', {'tools/a': '#!/bin/sh\n# Tell everybody.\n'}, '"everybody"'),
    ('no script', {'LICENSE': '# Who.\n'}, None),
    ('body', {'a.py': '# Wait until Nobody listens.\n'}, '"Nobody"'),
    ('string', {'a.c': 'const char *a = "/* What. */";\n'}, None),
    ("what's", {'a.c': "/* Whose's no word. */\n"}, None),
    ('wh-word inside', {'a.c': '/* Say which plan is evicted, and how. */\n'}, None),
]


def main():
    if sys.argv[1] == '--self-test':
        tree.self_test(check, CASES)
    if sys.argv[1] == '--count':
        return count(sys.argv[2])
    if sys.argv[1] == '--sample':
        return sample(int(sys.argv[2]), sys.argv[3])
    tree.report(check(sys.argv[1]), sum(1 for _ in comments(sys.argv[1])), 'comments')


if __name__ == '__main__':
    main()
