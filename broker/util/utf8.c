/* SPDX-License-Identifier: MIT */
/* UTF-8: see utf8.h. Overlong forms, surrogates and codes above U+10FFFF are no characters. */
#include "util/utf8.h"

#include <string.h>

size_t utf8_decode(const char *text, uint32_t *ret_code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *)text;
	size_t n = bytes[0] < 0x80   ? 1
		   : bytes[0] < 0xc2 ? 0
		   : bytes[0] < 0xe0 ? 2
		   : bytes[0] < 0xf0 ? 3
		   : bytes[0] < 0xf5 ? 4
				     : 0;
	uint32_t code = n > 1 ? bytes[0] & (0x7fu >> n) : bytes[0];

	for (size_t i = 1; i < n; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (bytes[i] & 0x3f);
	}
	if (n == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
	    (n > 1 && code < least[n]))
		return 0;
	*ret_code = code;
	return n;
}

bool utf8_steers(uint32_t code)
{
	/* C0 and C1; line and paragraph separators, directions and their isolates. */
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2066 && code <= 0x2069);
}

void copy_printable(const char *from, size_t bytes, char *ret, size_t ret_bytes)
{
	size_t n = 0;

	for (; n < bytes && n + 1 < ret_bytes && from[n]; n++)
		ret[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
	memset(ret + n, 0, ret_bytes - n);
}
