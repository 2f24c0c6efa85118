/* SPDX-License-Identifier: MIT */
/* The main() of test programs that define none. */
#include "support/test.h"

int main(void)
{
	return test_run(NULL, NULL);
}
