"""Makes pywavelets.csv with PyWavelets 1.8.0: three levels of `bior2.2`, scaled as the reversible 5/3 wavelet is."""

import numpy
import pywt

WIDTH, HEIGHT, LEVELS = 48, 32, 3
y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
plane = ((x * 37 + y * 91 + x * y * 13) % 256 * 64 - 8192).astype(float)
for level in range(LEVELS):
    width, height = WIDTH >> level, HEIGHT >> level
    low, (down, across, both) = pywt.dwt2(plane[:height, :width], "bior2.2", mode="reflect")
    # Filters of length 6 give more coefficients than half: the first and last belong to the mirror images.
    part = (slice(1, 1 + height // 2), slice(1, 1 + width // 2))
    # PyWavelets' filters have the norm of an orthogonal transform and the opposite sign of high ones.
    plane[: height // 2, : width // 2] = low[part] / 2
    plane[: height // 2, width // 2 : width] = across[part] * -1
    plane[height // 2 : height, : width // 2] = down[part] * -1
    plane[height // 2 : height, width // 2 : width] = both[part] * 2
numpy.savetxt("pywavelets.csv", plane, fmt="%.2f", delimiter=",")
