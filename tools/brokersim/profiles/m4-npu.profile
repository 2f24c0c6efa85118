# The Neural Engine of an Apple M4. Published: 38 TOPS in int8 (19 TFLOP/s in half precision), memory
# shared with the processor (120 GB/s): no link. Taken here: half precision, 45% of the peak; a program
# is started through a system service, which costs a tenth of a millisecond.
[device]
name = Apple M4 Neural Engine
source = https://www.apple.com/newsroom/2024/05/apple-introduces-m4-chip/
task = 100us
node = 2us
active-watts = 6 W

[rates]
matmul.flops = 4KiB: 50, 32KiB: 400, 256KiB: 2500, 2MiB: 6500, 16MiB: 8500 GFLOP/s
gemm.flops = 4KiB: 50, 32KiB: 400, 256KiB: 2500, 2MiB: 6500, 16MiB: 8500 GFLOP/s
convolution.flops = 4KiB: 60, 32KiB: 500, 256KiB: 3500, 2MiB: 8500, 16MiB: 11000 GFLOP/s
softmax.flops = 32KiB: 40, 2MiB: 300 GFLOP/s
selection.flops = 5 GFLOP/s
others.flops = 32KiB: 80, 2MiB: 600 GFLOP/s
transpose.bytes = 4KiB: 4, 256KiB: 30, 2MiB: 50 GB/s
others.bytes = 4KiB: 6, 256KiB: 50, 2MiB: 85, 16MiB: 95 GB/s
