"""Makers of masks: each takes the case's random numbers and gives an array."""

import numpy as np


def keep(*shape, of=0.6):
    return lambda r: r.chance(*shape, of=of)


def added(*shape, masked=0.0, dtype=np.float32):
    return lambda r: np.where(r.chance(*shape, of=masked), -np.inf, r(*shape, scale=2.0)).astype(dtype)


def without_row(shape, row):
    def make(r):
        m = r.chance(*shape, of=0.7)
        m[..., 0] = True
        m[..., row, :] = False
        return m

    return make
