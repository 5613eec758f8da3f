"""What a Python program gets from the metadata server: see ../README.md.

Each library has a module of its own; it is used as its users use it, and nothing about the server is patched in.
"""

import importlib
import json
import sys
import time
import traceback

library = importlib.import_module("of_" + sys.argv[1].replace("-", "_"))


def say(**line):
    print(json.dumps(line), flush=True)


def ask(question, step, word):
    begun = time.monotonic()
    try:
        result = {"value": question(word)}
    # As a program that does not catch it shows it: with what it was raised from.
    except library.Refused as error:
        result = {"error": "".join(traceback.format_exception_only(error))}
    say(step=step, milliseconds=int((time.monotonic() - begun) * 1000), **result)
    return "value" in result


say(step="begin")
for step in sys.argv[2:]:
    if step == "wait":
        say(step=step)
        sys.stdin.readline()
        continue
    name, _, word = step.removeprefix("until:").partition("=")
    tries = 20 if step.startswith("until:") else 1
    while not ask(getattr(library, name), step, word) and (tries := tries - 1):
        time.sleep(1)
