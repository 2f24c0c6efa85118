# SPDX-License-Identifier: MIT
"""Conversion of a terminal's screen, as tmux captures it with colours, to an SVG picture."""
import re
from xml.sax.saxutils import escape

CELL_WIDTH, CELL_HEIGHT = 8, 17
PAPER, INK, DIM_INK = '#1c1c1c', '#d0d0d0', '#8a8a8a'
FIRST_COLOURS = ('#000000', '#cd3131', '#0dbc79', '#e5e510', '#2472c8', '#bc3fbc', '#11a8cd', '#e5e5e5',
                 '#666666', '#f14c4c', '#23d18b', '#f5f543', '#3b8eea', '#d670d6', '#29b8db', '#ffffff')


def colour(number):
    """Return one of xterm's 256 colours."""
    if number < 16:
        return FIRST_COLOURS[number]
    if number >= 232:
        return '#' + f'{8 + 10 * (number - 232):02x}' * 3
    parts = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
    return '#' + ''.join(f'{55 + 40 * part if part else 0:02x}' for part in parts)


class Style:
    """The text style after the SGR sequences so far."""

    def __init__(self):
        self.ink, self.is_bold, self.is_dim, self.is_reverse = None, False, False, False

    def change(self, numbers):
        numbers = [int(number or 0) for number in numbers.split(';')]
        while numbers:
            number = numbers.pop(0)
            if number == 0:
                self.__init__()
            elif number == 38 and numbers[:1] == [5]:
                self.ink = colour(numbers[1])
                numbers = numbers[2:]
            elif 30 <= number < 38 or 90 <= number < 98:
                self.ink = colour(number - 30 if number < 38 else number - 82)
            elif number == 39:
                self.ink = None
            elif number in (1, 2, 7):
                setattr(self, {1: 'is_bold', 2: 'is_dim', 7: 'is_reverse'}[number], True)
            elif number == 22:
                self.is_bold = self.is_dim = False
            elif number == 27:
                self.is_reverse = False

    def run(self, text, x, y):
        """Yield the elements of a text that begins in the cell (x, y)."""
        ink, left, top = self.ink or (DIM_INK if self.is_dim else INK), x * CELL_WIDTH, y * CELL_HEIGHT
        width = len(text) * CELL_WIDTH
        if self.is_reverse:
            yield f'<rect x="{left}" y="{top}" width="{width}" height="{CELL_HEIGHT}" fill="{ink}"/>'
            ink = PAPER
        # Emit each run of words at its own position, so that widths do not depend on the font.
        for word in re.finditer(r'\S+(?: \S+)*', text):
            weight = ' font-weight="bold"' if self.is_bold else ''
            yield (f'<text x="{left + word.start() * CELL_WIDTH}" y="{top + CELL_HEIGHT - 4}" '
                   f'textLength="{len(word[0]) * CELL_WIDTH}" lengthAdjust="spacingAndGlyphs" '
                   f'fill="{ink}"{weight}>{escape(word[0])}</text>')


def svg(lines, columns):
    """Return the picture of the lines, which contain SGR sequences."""
    width, height = columns * CELL_WIDTH, len(lines) * CELL_HEIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'font-family="monospace" font-size="13">',
             f'<rect width="{width}" height="{height}" fill="{PAPER}"/>']
    style = Style()
    for y, line in enumerate(lines):
        x = 0
        # UTF-8 terminals ignore shifts between character sets.
        for numbers, text in re.findall(r'\033\[([\d;]*)m|([^\033\016\017]+)', line):
            if text:
                parts += style.run(text, x, y)
                x += len(text)
            else:
                style.change(numbers)
    return '\n'.join(parts + ['</svg>', ''])
