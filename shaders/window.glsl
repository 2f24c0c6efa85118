/* SPDX-License-Identifier: MIT */
/* Where the window of an output lies in an image, for Conv and pooling. */

/* The input position under tap @tap of output @at along one axis; beyond the image if padding. */
uint window_at(uint at_out, uint tap, uint stride, uint dilation, uint pad)
{
	/* Below zero wraps to a number that no image reaches. */
	return at_out * stride + tap * dilation - pad;
}
