"""A process in a pod: does what its standard input says, a line each, and answers with a line each.

Odd sockets (MPTCP, TCP fast open, packets written by hand) are why this is no Rust.
"""
import ctypes, errno, os, select, socket, struct, subprocess, sys, time

MPTCP, MSG_FASTOPEN, TCP_FASTOPEN_CONNECT = 262, 0x20000000, 30
REQUEST = b"GET / HTTP/1.0\r\n\r\n"
held = []


def answer(s):
    s.settimeout(10)
    text = b""
    while True:
        part = s.recv(4096)
        if not part:
            return text.decode().strip()
        text += part


def asked(s):
    s.settimeout(10)
    s.send(REQUEST)
    return answer(s)


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def stream(address, protocol=0):
    s = socket.socket(family(address), socket.SOCK_STREAM, protocol)
    s.settimeout(10)
    return s


def connect(address, port):
    s = stream(address)
    s.connect((address, port))
    return asked(s)


def bound(address, port):
    s = stream(address)
    s.bind(("", 0))
    s.connect((address, port))
    return asked(s)


def nonblocking(address, port):
    s = stream(address)
    s.setblocking(False)
    try:
        s.connect((address, port))
    except BlockingIOError:
        pass
    select.select([], [s], [], 10)
    s.setblocking(True)
    return asked(s)


def v6only(address, port):
    s = stream(address)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.connect((address, port))
    return asked(s)


def mptcp(address, port):
    s = stream(address, MPTCP)
    s.connect((address, port))
    return asked(s)


def tfo_send(address, port):
    s = stream(address)
    try:
        s.sendto(REQUEST, MSG_FASTOPEN, (address, port))
    except BlockingIOError:
        # Without a cookie of this server's: an ordinary handshake, and nothing was sent.
        select.select([], [s], [], 10)
        return asked(s)
    return answer(s)


def tfo_connect(address, port):
    s = stream(address)
    s.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
    s.connect((address, port))
    return asked(s)


def udp(address, port):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((address, port))
    s.send(b"?")
    return s.recv(100).decode().strip()


def syn(source, source_port, address, port):
    """A SYN, with its checksum (RFC 9293)."""
    ends = socket.inet_pton(family(source), source) + socket.inet_pton(family(address), address)
    tcp = struct.pack("!HHLLBBHHH", source_port, port, 1, 0, 5 << 4, 2, 64240, 0, 0)
    sums = ends + struct.pack("!HH", 6, len(tcp)) + tcp
    total = sum(struct.unpack("!%dH" % (len(sums) // 2), sums))
    total = (total >> 16) + (total & 0xFFFF)
    total = ~(total + (total >> 16)) & 0xFFFF
    return tcp[:16] + struct.pack("!H", total) + tcp[18:]


def forge(source, source_port, address, port):
    """Sends a SYN from this end, which can be somebody else's, with an IP header written by hand (RFC 791, RFC 8200)."""
    tcp = syn(source, int(source_port), address, int(port))
    ends = socket.inet_pton(family(source), source) + socket.inet_pton(family(address), address)
    if family(address) == socket.AF_INET:
        # The kernel fills in the length and the checksum (raw(7)).
        head = struct.pack("!BBHHHBBH", 0x45, 0, 0, 1, 0, 64, 6, 0)
    else:
        head = struct.pack("!LHBB", 6 << 28, len(tcp), 6, 64)
    s = socket.socket(family(address), socket.SOCK_RAW, socket.IPPROTO_RAW)
    s.sendto(head + ends + tcp, (address, 0))
    return "sent"


def hear(address):
    """Hears from now on each TCP packet of the address's family."""
    held.append(socket.socket(family(address), socket.SOCK_RAW, socket.IPPROTO_TCP))
    return "hearing"


def heard(last_port):
    """The source ports of the packets that came, up to the one from `last_port`."""
    s = held.pop()
    s.settimeout(10)
    ports = []
    while ports[-1:] != [last_port]:
        packet = s.recv(2048)
        # Only IPv4 sockets get the IP header (raw(7)).
        tcp = packet[20:] if s.family == socket.AF_INET else packet
        ports.append(str(struct.unpack("!H", tcp[:2])[0]))
    return " ".join(ports)


def raw_syn(address, port):
    """Whether anybody answers a SYN that no socket sent."""
    source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    source.connect(("10.45.0.2", 9))
    target = socket.inet_aton(address)
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    s.sendto(syn(source.getsockname()[0], 45678, address, port), (address, 0))
    # Something else that takes the same way and is answered, sent behind it: what has not come by then will not come.
    udp("10.45.0.2", 5353)
    s.setblocking(False)
    while True:
        try:
            packet = s.recv(2048)
        except BlockingIOError:
            return "nothing"
        if packet[12:16] == target:
            return "answered"


def hold(address, port, *own):
    """Connects and keeps the connection, from an address and port of its own if told."""
    s = stream(address)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if own:
        s.bind((own[0], int(own[1])))
    s.connect((address, port))
    held.append(s)
    return "%s %d" % s.getsockname()[:2]


def plant(address, port, own, own_port):
    """Sends a SYN that its receiver ignores, because it does not expect the signature (RFC 2385), and closes the socket."""
    s = stream(address)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((own, int(own_port)))
    # A struct sockaddr_storage, and then the key (linux/tcp.h, struct tcp_md5sig). The address of IPv6 comes behind its flow.
    flow = b"" if family(address) == socket.AF_INET else bytes(4)
    peer = struct.pack("=H", family(address)) + struct.pack("!H", int(port)) + flow + socket.inet_pton(family(address), address)
    key = struct.pack("BBHi80s", 0, 0, 4, 0, b"none")
    s.setsockopt(socket.IPPROTO_TCP, 14, peer.ljust(128, b"\0") + key)
    s.setblocking(False)
    try:
        s.connect((address, int(port)))
    except BlockingIOError:
        pass
    s.close()
    return "sent"


def again(address, port):
    """Connects to the metadata address, disconnects (AF_UNSPEC), and connects elsewhere with the same socket."""
    s = stream("169.254.169.254")
    s.connect(("169.254.169.254", 80))
    if ctypes.CDLL(None).connect(s.fileno(), bytes(16), 16):
        return "not disconnected"
    s.connect((address, port))
    return asked(s)


def squat(address, port):
    """Listens, beside others if they are willing, and answers nobody."""
    s = stream(address)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind((address, int(port)))
    s.listen(4)
    held.append(s)
    return "listening"


def release():
    while held:
        held.pop().close()
    return "released"


def last():
    return asked(held.pop())


def load(address, port, times):
    """Asks so often, a connection each; what was answered how often."""
    answers = {}
    for _ in range(int(times)):
        try:
            text = connect(address, port)
        except OSError as error:
            text = errno.errorcode.get(error.errno, str(error))
        answers[text] = answers.get(text, 0) + 1
    return " ".join("%s=%d" % pair for pair in sorted(answers.items()))


def request(target, more=""):
    return ("GET %s HTTP/1.1\r\nHost: metadata\r\nMetadata-Flavor: Google\r\n%s\r\n" % (target, more)).encode()


def response(s, closes=None):
    """Status and body of one answer, in a line; nothing where the server had ended the connection. Appends to `closes` whether it said it would."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = s.recv(65536)
        if not part and not text:
            return None
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "in the middle")
        text += part
    head, body = text.split(b"\r\n\r\n", 1)
    lines = head.decode().lower().split("\r\n")
    length = [int(line.split(":")[1]) for line in lines if line.startswith("content-length:")][0]
    while len(body) < length:
        body += s.recv(65536)
    if closes is not None:
        closes.append("connection: close" in lines)
    return "%s %s" % (lines[0].split()[1], " ".join(body.decode().split()))


def fetch(address, port, target):
    """One request of HTTP on a connection of its own."""
    s = stream(address)
    s.connect((address, port))
    s.send(request(target, "Connection: close\r\n"))
    return response(s)


def fetch_v6only(address, port, target):
    """The same from a socket that cannot reach IPv4 addresses."""
    s = stream(address)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.connect((address, port))
    s.send(request(target, "Connection: close\r\n"))
    return response(s)


def fetch_held(target):
    """The same on the connection that was held last."""
    s = held.pop()
    s.settimeout(10)
    s.send(request(target, "Connection: close\r\n"))
    return response(s)


def fetch_on(target, address, port, kept):
    """On the kept connection, or on a new one where the last answer said that it was ended. What meets its end is not sent again."""
    if not kept:
        kept.append(stream(address))
        kept[0].connect((address, port))
    closes = []
    kept[0].send(request(target))
    said = response(kept[0], closes)
    if closes != [False]:
        kept.pop().close()
    return said


def steady(kind, address, port, target):
    """Asks on and on until told something else; how often each status was answered, and how many connections that took."""
    answers, kept, connections = {}, [], 0
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        is_new = not kept
        try:
            said = fetch_on(target, address, port, kept) if kind == "kept" else fetch(address, port, target)
            status = (said or "ended").split()[0]
        except OSError as error:
            status = errno.errorcode.get(error.errno, repr(error))
            kept.clear()
        connections += is_new
        answers[status] = answers.get(status, 0) + 1
    return "%d connections: %s" % (connections, " ".join("%s=%d" % pair for pair in sorted(answers.items())))


def counted(answers):
    return " ".join("%s=%d" % (name, answers.count(name)) for name in sorted(set(answers)))


def begin(s, address, port):
    """Connects without waiting; what came of it."""
    s.setblocking(False)
    try:
        s.connect((address, port))
    except BlockingIOError:
        pass
    except OSError as error:
        return errno.errorcode[error.errno]
    return "connecting"


def flood(address, port, times):
    """Begins so many connections and keeps them; how often what came of it."""
    answers = []
    for _ in range(int(times)):
        s = stream(address)
        answers.append(begin(s, address, port))
        held.append(s)
    return counted(answers)


def churn(address, port, times):
    """Begins so many connections, one after the other, and resets each at once."""
    answers = {}
    for _ in range(int(times)):
        s = stream(address)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        said = begin(s, address, port)
        answers[said] = answers.get(said, 0) + 1
        s.close()
    return " ".join("%s=%d" % pair for pair in sorted(answers.items()))


def delayed(address, port, times):
    """Connects so often, with sockets whose SYN waits for data (TCP fast open), and only then sends on all of them."""
    first = stream(address)
    first.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
    first.connect((address, port))
    first.send(b"?")
    held.append(first)
    answers = []
    for _ in range(int(times)):
        s = stream(address)
        s.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
        s.setblocking(False)
        s.connect((address, port))
        held.append(s)
    for s in held[1:]:
        try:
            s.send(b"?")
        except BlockingIOError:
            pass
        answers.append("sent")
    return counted(answers)


def stop():
    return "stopped"


def attack(victim, victim_port, agent, agent_port):
    """In a namespace of its own, where it may have any address, as nobody without a right: connects with the victim's ends."""
    program = """
import socket, struct, subprocess, sys
for address in ("%(victim)s", "%(agent)s"):
    subprocess.run(["ip", "address", "add", address + "/32", "dev", "lo"], check=False, stderr=subprocess.DEVNULL)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
listener = socket.socket()
listener.bind(("%(agent)s", %(agent_port)s))
listener.listen(4)
s = socket.socket()
# Gone at once when it is closed.
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
s.bind(("%(victim)s", %(victim_port)s))
try:
    s.connect(("169.254.169.254", 80))
    print("connected to %%s %%d" %% s.getpeername(), flush=True)
except PermissionError:
    print("EPERM", flush=True)
sys.stdin.read()
""" % locals()
    unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    python = "/usr/bin/python3"
    child = subprocess.Popen(unprivileged + alone + [python, "-c", program], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    held.append(Attacker(child))
    return child.stdout.readline().strip()


class Attacker:
    def __init__(self, child):
        self.child = child

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def expect(path):
    """Waits for a socket that somebody gives."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(1)
    held.append(s)
    return "expecting"


def give(path):
    """Makes a socket and gives it away."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    given = stream("169.254.169.254")
    socket.send_fds(s, [b"!"], [given.fileno()])
    return "given"


def use(address, port):
    """Connects with the socket that was given."""
    giver, _ = held.pop().accept()
    _, given, _, _ = socket.recv_fds(giver, 1, 1)
    s = socket.socket(fileno=given[0])
    s.settimeout(10)
    s.connect((address, port))
    return asked(s)


def join(group):
    with open(group + "/cgroup.procs", "w") as procs:
        procs.write("0")
    return "joined"


def told(line):
    what, *words = line.split()
    if what == "steady":
        kind, address, port, target = words
        return steady(kind, address, int(port), target)
    if what in ("ask", "hold", "load", "use", "fetch", "fetch_v6only", "flood", "churn", "delayed"):
        name = words.pop(0) if what == "ask" else what
        address, port, *rest = words
        return globals()[name](address, int(port), *rest)
    return globals()[what](*words)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            said = "ok " + (told(line) or "ended")
        except OSError as error:
            said = "error " + errno.errorcode.get(error.errno, repr(error))
        print(said, flush=True)
