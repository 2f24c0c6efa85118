/* SPDX-License-Identifier: MIT */
/* Print a completion. */
#include <ringbroker.h>
#include <stdio.h>

void print(const struct rbk_cqe *cqe)
{
	if (cqe->device == RBK_DEVICE_NONE)
		printf("%llu ran nowhere: %d\n", (unsigned long long)cqe->user_data, cqe->res);
	else
		printf("%llu ran on device %u: %s\n", (unsigned long long)cqe->user_data,
		       cqe->device, rbk_reason_name(cqe->reason));
}

int main(void)
{
	struct rbk *rbk;

	if (rbk_connect(NULL, &rbk, NULL))
		return 1;
	printf("ABI %d.%d, residency: %s\n", RBK_ABI_MAJOR, RBK_ABI_MINOR,
	       rbk_features(rbk) & RBK_FEAT_RESIDENCY ? "yes" : "no");
	rbk_disconnect(rbk);
	return 0;
}
