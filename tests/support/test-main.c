/* SPDX-License-Identifier: MIT */
/* main() of test programs that have none. */
#include "support/test.h"

int main(void)
{
	return test_run(NULL, NULL);
}
