"""A pod's program that asks who it is from its first moment on, and tells a collector every answer: HOST PORT NAME...

A token each time on a connection of its own, and an e-mail on one that is kept.
"""
import errno, os, signal, socket, sys, time
from pod import fetch, fetch_on

AT, ACCOUNT = ("169.254.169.254", 80), "/computeMetadata/v1/instance/service-accounts/default/"

# The first process of a pod is not ended by what it does not ask for.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def said(ask):
    try:
        return ask() or "ended"
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))


def email(kept):
    answer = said(lambda: fetch_on(ACCOUNT + "email", *AT, kept))
    if not answer[:3].isdigit():
        kept.clear()
    return answer


kept, first = [], said(lambda: fetch(*AT, ACCOUNT + "token"))
collector = socket.create_connection((sys.argv[1], int(sys.argv[2])))
collector.sendall(("%s\ntoken %s\n" % (" ".join(sys.argv[3:]), first)).encode())
while True:
    collector.sendall(("email %s\n" % email(kept)).encode())
    time.sleep(0.1)
    collector.sendall(("token %s\n" % said(lambda: fetch(*AT, ACCOUNT + "token"))).encode())
    time.sleep(0.1)
