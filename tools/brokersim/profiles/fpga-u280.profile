# AMD (Xilinx) Alveo U280. Published: 9024 DSP slices, 24.5 TOPS in int8, 460 GB/s of HBM2, 8 GiB of
# it, PCIe 3.0 x16. Taken here: float on half of the slices at 250 MHz (0.9 TFLOP/s), a pipeline that
# is hardly slower on small data, 11 GB/s over the bus.
[device]
name = AMD Alveo U280
source = https://docs.amd.com/v/u/en-US/ds963-u280
task = 30us
node = 500ns
memory = 8GiB
active-watts = 75 W

[link]
up = 11 GB/s
down = 11 GB/s
latency = 12us

[rates]
matmul.flops = 4KiB: 200, 32KiB: 500, 256KiB: 700, 2MiB: 850 GFLOP/s
gemm.flops = 4KiB: 200, 32KiB: 500, 256KiB: 700, 2MiB: 850 GFLOP/s
convolution.flops = 4KiB: 250, 32KiB: 600, 256KiB: 800, 2MiB: 900 GFLOP/s
selection.flops = 100 GFLOP/s
others.flops = 300 GFLOP/s
others.bytes = 4KiB: 30, 256KiB: 150, 2MiB: 280, 16MiB: 380 GB/s
