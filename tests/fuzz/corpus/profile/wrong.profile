up = 1
[device]
name =
servers = 0
servers = 3
task = nan
memory = 1e9
[link]
up = -6 GB/s
[tenant]
a = b
[rates]
matmul.flops = 4KiB:20, 4KiB:900, :5200 GFLOP/s
gemm.bytes = 1e999
others.bytes = 4KiB:1,2
