# Texas Instruments TMS320C6678. Published: 8 cores, 1.25 GHz, 160 GFLOP/s in single precision, DDR3-1333 on 64
# bits (10.7 GB/s), PCIe 2.0 x2 (1 GB/s), 10 W. Taken here: half of the peak in large products, 0.75 GB/s over
# the bus. The device is worthwhile only for tasks with many operations per byte.
[device]
name = TI TMS320C6678
source = https://www.ti.com/product/TMS320C6678
task = 20us
node = 2us
memory = 2GiB
active-watts = 8 W

[link]
up = 750 MB/s
down = 750 MB/s
latency = 10us

[rates]
matmul.flops = 4KiB: 15, 32KiB: 45, 256KiB: 70, 2MiB: 85 GFLOP/s
gemm.flops = 4KiB: 15, 32KiB: 45, 256KiB: 70, 2MiB: 85 GFLOP/s
convolution.flops = 4KiB: 15, 32KiB: 50, 256KiB: 75, 2MiB: 90 GFLOP/s
selection.flops = 4 GFLOP/s
others.flops = 20 GFLOP/s
others.bytes = 4KiB: 3, 256KiB: 6, 2MiB: 8 GB/s
