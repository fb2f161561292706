"""Makes this folder: index.json and one safetensors file a case, from NumPy in float64.

Run `python3 make.py` here; it needs NumPy and nothing else, and writes the same bytes every time. Inputs come from the
raw 64-bit stream of PCG64 (which NumPy keeps stable, unlike the distributions on top of it), seeded with the CRC-32 of
the case's name, so that no case depends on another. Expected values are rounded (float64 to 12 decimals), so that the
last bits of the exp and tanh of one machine do not show.
"""

import json
import sys

sys.dont_write_bytecode = True

from cases.decoder import decoder_cases
from cases.files import file_cases
from cases.models import model_cases
from cases.onnx import onnx_cases
from cases.quantised import quantised_cases
from cases.store import CASES, HERE
from cases.torch import torch_cases
from cases.tutorials import tutorial_cases

for old in HERE.glob("*/*.safetensors"):
    old.unlink()
for make in (onnx_cases, torch_cases, tutorial_cases, decoder_cases, model_cases, quantised_cases, file_cases):
    make()
lines = ",\n".join(json.dumps(entry, sort_keys=True, ensure_ascii=True) for entry in CASES)
(HERE / "index.json").write_text(f'{{"format":1,"cases":[\n{lines}\n]}}\n')
print(f"{len(CASES)} cases")
