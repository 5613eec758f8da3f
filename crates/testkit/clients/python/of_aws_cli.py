"""What AWS's command line is asked: a process for each question, as scripts have it."""

import subprocess
import sys


class Refused(Exception):
    """It ended with a status and this text."""


def caller(_):
    """Whose credentials it finds, as the STS says to whom AWS_ENDPOINT_URL_STS leads."""
    words = ["--region", "eu-west-1", "sts", "get-caller-identity", "--query", "Arn", "--output", "text"]
    done = subprocess.run([sys.executable, "-m", "awscli", *words], capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout.strip()
