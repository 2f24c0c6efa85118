/* SPDX-License-Identifier: MIT */
/* Positions of windows in an image, for Conv and pooling. */

/*
 * Return the input position under tap @tap of output @at_out along one axis; in the padding, it is
 * beyond the image.
 */
uint window_at(uint at_out, uint tap, uint stride, uint dilation, uint pad)
{
	/* Below zero, the position wraps around to a number beyond every image. */
	return at_out * stride + tap * dilation - pad;
}
