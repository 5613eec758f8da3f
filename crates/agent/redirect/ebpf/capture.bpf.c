// SPDX-License-Identifier: Apache-2.0
//
// Three programs for the control group of the node's pods. `connect4` and `connect6` send connects to the clouds' metadata
// addresses to the agent and write down on the socket whose it is; `sockops` publishes that under the connection's addresses
// and ports when these are chosen and before the first packet leaves, so that it is there before the agent can accept.
//
// Whatever cannot be decided is refused (EPERM): no agent, no pod, no memory. So is what would go beyond a pod's share of the records.
// Nobody but an agent's own pod reaches a metadata address itself. Only contexts of the user API are read, so no kernel's types are needed and one object runs on all.
//
// Layouts here are those of `target.rs`, `connection_owners.rs` and `counts.rs`, whose tests compare sizes; another layout is
// another directory of pins (`pins.rs`).

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define INET 2
#define INET6 10
#define STREAM 1
#define TCP 6
#define MPTCP 262
#define ALWAYS static __always_inline

enum verdict { REFUSE = 0, PASS = 1 };

// What an address is to us.
enum place { ELSEWHERE, METADATA, CONTAINERS };

// Slots of `counts`: eight for each program.
enum count { CAPTURED, DIRECT, EXEMPT, NO_AGENT, NO_POD, NO_SERVICE, TOO_MANY_WAITING, UNRESPONSIVE_AGENT };
enum published { NOTED, ENDED, LOST };
#define SLOTS 8
#define OF4 0
#define OF6 SLOTS
#define OFOPS (2 * SLOTS)

// A pod's share of the records, and how many of its places a connect looks at: half of them from the last one taken on, as the oldest
// record frees the next place under overload; half of them from a random one on, where old records wait next to each other.
#define SHARE 512
#define TRIES 8
#define ROWS 64
#define HINTS 4096

// An agent that has not written its beat for so long is hung or stopped, in nanoseconds.
#define SILENCE 3000000000LL

// Where captured connections go, and what a pod is. Addresses and ports in network order, 0 for none.
struct target {
	__u32 v4;
	__u16 metadata;
	__u16 containers;
	__u32 v6[4];
	__u32 level;		// of `kubepods` in the tree of groups
	__u16 self;		// where an agent meets itself; nobody is sent there
	__u16 seat;		// of the agent's listener in `listeners`
	__u64 kubepods;		// ids of groups from here on
	__u64 qos[2];		// those between `kubepods` and most pods
	__u64 exempt[2];	// the agents' own pods, two while one replaces the other
	__u64 node;		// cookie of the node's own network namespace
};

struct caller {
	__u64 pod;		// its group
	__u64 netns;		// cookie of the socket's network namespace
	__u64 socket;		// cookie
};

// A connection as the agent sees it, in network order, IPv4 as mapped addresses. In a network namespace that a pod makes for itself
// it can have any address, the agent's and another pod's among them, so addresses and ports alone prove nothing: `owner` is what a pod
// cannot choose. It is the pod's group, or 0 in the node's own namespace, where the kernel keeps such tuples unique.
struct connection {
	__u64 owner;
	__u32 peer[4];
	__u32 local[4];
	__u16 peer_port;
	__u16 local_port;
	__u32 unused;
};

struct mine {
	struct caller caller;
	struct connection connection;
};

// A place of a pod, which names one of its records. The place is free when that record is no longer in `callers`. Nothing else frees it,
// so whoever removes a record frees the place: the agent, the end of the socket, or the map itself, which pushes out the oldest.
struct waiter {
	struct bpf_spin_lock lock;
	__u32 changes;		// counts up with each record that is named here
	struct connection connection;
	__u64 socket;		// cookie
};

// A hash of one and not an array: its update swaps the whole value, so no program ever reads half of an old target and half
// of a new one.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct target);
} target SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mine);
} mine SEC(".maps");

// Only what waits to be accepted: the agent takes what it reads, and what ends before goes with its socket.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SHARE * ROWS);
	__type(key, struct connection);
	__type(value, struct caller);
} callers SEC(".maps");

// The pods' places. Each pod has one in each of `SHARE` columns, in a row that depends on the pod and the column. So two pods share one
// in 64 of their places, and which these are no pod can choose.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARE * ROWS);
	__type(key, __u32);
	__type(value, struct waiter);
} waiters SEC(".maps");

// The column that a pod took last. Nothing depends on it but where to look first, so pods may share an entry.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HINTS);
	__type(key, __u32);
	__type(value, __u32);
} hints SEC(".maps");

// A listening socket of each agent that lives. The kernel takes it out when it is closed, before its port can be anybody else's: so nobody is
// sent to a pod on the node's network that listens where an agent died.
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

// When each of these agents last said that its threads run, on the clock CLOCK_MONOTONIC in nanoseconds.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} beats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3 * SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

// Read before any branch, and out of the compiler's sight: it would otherwise merge two branches into one load through a pointer
// that it moved, which the verifier refuses, of contexts ("dereference of modified ctx ptr") and, to who lacks CAP_PERFMON, of maps.
#define READ(field) ({ __u32 read = (field); asm volatile("" : "+r"(read)); read; })

ALWAYS void count(__u32 slot)
{
	__u64 *counted = bpf_map_lookup_elem(&counts, &slot);

	if (counted)
		*counted += 1;
}

ALWAYS int refuse(__u32 slot)
{
	count(slot);
	return REFUSE;
}

// UDP stays as it is: 169.254.169.254 is a DNS server on Google's machines.
ALWAYS int is_tcp(struct bpf_sock_addr *ctx)
{
	__u32 protocol = ctx->protocol;

	return ctx->type == STREAM && (protocol == TCP || protocol == MPTCP);
}

ALWAYS enum place place4(__u32 address)
{
	if (address == bpf_htonl(0xa9fea9fe))	// 169.254.169.254
		return METADATA;
	if (address == bpf_htonl(0xa9feaa17))	// 169.254.170.23
		return CONTAINERS;
	return ELSEWHERE;
}

ALWAYS int is_mapped(const __u32 *a)
{
	return !a[0] && !a[1] && a[2] == bpf_htonl(0xffff);
}

ALWAYS enum place place6(const __u32 *a)
{
	if (is_mapped(a))
		return place4(a[3]);
	if (a[1] || a[2])
		return ELSEWHERE;
	if (a[0] == bpf_htonl(0xfd2000ce) && a[3] == bpf_htonl(0x254))	// fd20:ce::254
		return METADATA;
	if (a[0] == bpf_htonl(0xfd000ec2) && a[3] == bpf_htonl(0x254))	// fd00:ec2::254
		return METADATA;
	if (a[0] == bpf_htonl(0xfd000ec2) && a[3] == bpf_htonl(0x23))	// fd00:ec2::23
		return CONTAINERS;
	return ELSEWHERE;
}

ALWAYS struct target *current_target(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&target, &only);
}

ALWAYS int is_port(const struct target *to, __u32 port)
{
	return port && (port == to->metadata || port == to->containers || port == to->self);
}

// The pod of who connects, 0 for none. The lower of the two levels if the upper one is a class of service's; whatever groups a pod makes
// below its own change nothing. A task outside the pods' tree may hold a pod's socket, hence the first question.
ALWAYS __u64 pod_of_caller(const struct target *to)
{
	__u64 upper, lower;

	if (!to->kubepods || bpf_get_current_ancestor_cgroup_id(to->level) != to->kubepods)
		return 0;
	upper = bpf_get_current_ancestor_cgroup_id(to->level + 1);
	lower = bpf_get_current_ancestor_cgroup_id(to->level + 2);
	return upper == to->qos[0] || upper == to->qos[1] ? lower : upper;
}

// By group and not by a mark on the socket: a pod with CAP_NET_ADMIN can set marks.
ALWAYS int is_exempt(const struct target *to, __u64 pod)
{
	return pod && (pod == to->exempt[0] || pod == to->exempt[1]);
}

// A socket that was disconnected and connects again may be in other hands and go elsewhere: what was written down was for one connect.
ALWAYS void forget_last(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct mine *noted = sk ? bpf_sk_storage_get(&mine, sk, 0, 0) : 0;

	if (noted)
		noted->caller.pod = 0;
}

// Writes down on the socket whose it is. The connection's own ends are not chosen yet.
ALWAYS int write_down(struct bpf_sock_addr *ctx, const struct target *to, __u64 pod)
{
	struct bpf_sock *sk = ctx->sk;
	struct mine *noted;

	if (!sk || !pod)
		return 0;
	noted = bpf_sk_storage_get(&mine, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!noted)
		return 0;
	noted->caller.pod = pod;
	noted->caller.netns = bpf_get_netns_cookie(ctx);
	noted->caller.socket = bpf_get_socket_cookie(ctx);
	noted->connection.owner = to->node && noted->caller.netns == to->node ? 0 : pod;
	return 1;
}

// Spreads pods and columns (MurmurHash3's finalizer). With less, two pods share many places next to each other.
ALWAYS __u32 mixed(__u64 pod, __u32 column)
{
	__u64 x = pod * 0x9e3779b97f4a7c15ULL + column;

	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
	return x ^ (x >> 33);
}

ALWAYS struct waiter *place_of(__u64 pod, __u32 column)
{
	__u32 key = column * ROWS + (mixed(pod, column) & (ROWS - 1));

	return bpf_map_lookup_elem(&waiters, &key);
}

ALWAYS __u32 *hint_of(__u64 pod)
{
	__u32 key = mixed(pod, SHARE) & (HINTS - 1);

	return bpf_map_lookup_elem(&hints, &key);
}

// Whether the record that a place names no longer waits. Without the lock, so another processor may be changing it.
ALWAYS int seems_free(const struct waiter *place)
{
	const struct caller *now = bpf_map_lookup_elem(&callers, &place->connection);

	return !now || now->socket != place->socket;
}

// The next column to look at, of which `tried` were looked at.
ALWAYS __u32 next_column(__u32 column, int tried)
{
	return (tried == TRIES / 2 ? bpf_get_prandom_u32() : column + !!tried) & (SHARE - 1);
}

ALWAYS int has_free_place(__u64 pod)
{
	__u32 *hint = hint_of(pod);
	__u32 column = hint ? *hint : 0;
	struct waiter *place;

#pragma unroll
	for (int tried = 0; tried < TRIES; tried++) {
		column = next_column(column, tried);
		place = place_of(pod, column);
		if (place && seems_free(place))
			return 1;
	}
	return 0;
}

// Names a record that is in `callers` already, else another connect would see a place here that is free. Between the connect's look and
// this one others can have taken the last place: connects on other processors, or those whose SYN waits for data (TCP fast open).
// What is read between the two locks is of the change that the first one saw, or the second one sees another.
ALWAYS int take_place(const struct mine *noted)
{
	__u64 pod = noted->caller.pod;
	__u32 *hint = hint_of(pod);
	__u32 column = hint ? *hint : 0, changes;
	struct waiter *place;
	int is_taken;

#pragma unroll
	for (int tried = 0; tried < TRIES; tried++) {
		column = next_column(column, tried);
		place = place_of(pod, column);
		if (!place)
			continue;
		bpf_spin_lock(&place->lock);
		changes = place->changes;
		bpf_spin_unlock(&place->lock);
		if (!seems_free(place))
			continue;
		bpf_spin_lock(&place->lock);
		is_taken = place->changes == changes;
		if (is_taken) {
			place->changes = changes + 1;
			place->connection = noted->connection;
			place->socket = noted->caller.socket;
		}
		bpf_spin_unlock(&place->lock);
		if (!is_taken)
			continue;
		if (hint)
			*hint = column;
		return 1;
	}
	return 0;
}

// Why the agent takes no connect, as a slot of `counts`; 0 if it does.
ALWAYS __u32 lack_of(const struct target *to)
{
	__u32 seat = to->seat;
	struct bpf_sock *listener = bpf_map_lookup_elem(&listeners, &seat);
	__u64 *beat;

	if (!listener)
		return NO_AGENT;
	bpf_sk_release(listener);
	beat = bpf_map_lookup_elem(&beats, &seat);
	if (!beat || (__s64)(bpf_ktime_get_coarse_ns() - *beat) >= SILENCE)
		return UNRESPONSIVE_AGENT;
	return 0;
}

// Why a pod's connect to the agent is refused, as a slot of `counts`; 0 if it is written down. An agent can always reach itself.
ALWAYS __u32 refusal_of(struct bpf_sock_addr *ctx, const struct target *to, __u64 pod, int is_own)
{
	__u32 lack = is_own ? 0 : lack_of(to);

	if (lack)
		return lack;
	if (pod && !has_free_place(pod))
		return TOO_MANY_WAITING;
	return write_down(ctx, to, pod) ? 0 : NO_POD;
}

// A connect straight to the agent, as that of a proxy beside the container that dials the address it was asked for, is as good
// as a captured one. An agent reaches itself before it is ready, also where the target is still a dead agent at the same port.
ALWAYS int direct(struct bpf_sock_addr *ctx, const struct target *to, __u32 port, __u32 slots)
{
	__u64 pod = pod_of_caller(to);

	__u32 refusal = refusal_of(ctx, to, pod, port == to->self || is_exempt(to, pod));

	if (refusal)
		return refuse(slots + refusal);
	count(slots + DIRECT);
	return PASS;
}

// The port to send a connect to, in network order; 0 if the verdict is in `*verdict`.
ALWAYS __u32 port_for(struct bpf_sock_addr *ctx, const struct target *to, enum place place, __u32 port,
		      __u32 slots, int *verdict)
{
	__u32 metadata, containers, service, refusal;
	__u64 pod;

	*verdict = REFUSE;
	if (!to)
		return refuse(slots + NO_AGENT);
	pod = pod_of_caller(to);
	if (is_exempt(to, pod)) {
		count(slots + EXEMPT);
		*verdict = PASS;
		return 0;
	}
	if (port != bpf_htons(80))	// 443, say, is the real server over TLS
		return refuse(slots + NO_SERVICE);
	metadata = READ(to->metadata);
	containers = READ(to->containers);
	service = place == METADATA ? metadata : containers;
	if (!service)
		return refuse(slots + NO_AGENT);
	refusal = refusal_of(ctx, to, pod, 0);
	if (refusal)
		return refuse(slots + refusal);
	return service;
}

SEC("cgroup/connect4")
int seawall4(struct bpf_sock_addr *ctx)
{
	__u32 address = ctx->user_ip4, port = ctx->user_port;
	enum place place = place4(address);
	struct target *to;
	__u32 service;
	int verdict;

	if (!is_tcp(ctx))
		return PASS;
	forget_last(ctx);
	if (place != ELSEWHERE && port == bpf_htons(53))
		return PASS;
	to = current_target();
	if (place == ELSEWHERE) {
		if (!to || address != to->v4 || !is_port(to, port))
			return PASS;
		return direct(ctx, to, port, OF4);
	}
	service = port_for(ctx, to, place, port, OF4, &verdict);
	if (!service || !to)
		return verdict;
	if (!to->v4)
		return refuse(OF4 + NO_AGENT);
	ctx->user_ip4 = to->v4;
	ctx->user_port = service;
	count(OF4 + CAPTURED);
	return PASS;
}

ALWAYS int is_target6(const struct target *to, const __u32 *a)
{
	if (is_mapped(a))
		return to->v4 && a[3] == to->v4;
	return (to->v6[0] | to->v6[1] | to->v6[2] | to->v6[3]) && a[0] == to->v6[0] && a[1] == to->v6[1] &&
	       a[2] == to->v6[2] && a[3] == to->v6[3];
}

// Who asked for IPv4 is answered by IPv4, whoever asked for IPv6 by IPv6 if the node has it; else mapped, which a socket
// for IPv6 alone cannot reach (ENETUNREACH).
SEC("cgroup/connect6")
int seawall6(struct bpf_sock_addr *ctx)
{
	__u32 a[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] };
	__u32 port = ctx->user_port;
	enum place place = place6(a);
	struct target *to;
	__u32 service;
	int verdict;

	if (!is_tcp(ctx))
		return PASS;
	forget_last(ctx);
	if (place != ELSEWHERE && port == bpf_htons(53))
		return PASS;
	to = current_target();
	if (place == ELSEWHERE) {
		if (!to || !is_port(to, port) || !is_target6(to, a))
			return PASS;
		return direct(ctx, to, port, OF6);
	}
	service = port_for(ctx, to, place, port, OF6, &verdict);
	if (!service || !to)
		return verdict;
	if (!is_mapped(a) && (to->v6[0] | to->v6[1] | to->v6[2] | to->v6[3])) {
		ctx->user_ip6[0] = to->v6[0];
		ctx->user_ip6[1] = to->v6[1];
		ctx->user_ip6[2] = to->v6[2];
		ctx->user_ip6[3] = to->v6[3];
	} else {
		if (!to->v4)
			return refuse(OF6 + NO_AGENT);
		ctx->user_ip6[0] = 0;
		ctx->user_ip6[1] = 0;
		ctx->user_ip6[2] = bpf_htonl(0xffff);
		ctx->user_ip6[3] = to->v4;
	}
	ctx->user_port = service;
	count(OF6 + CAPTURED);
	return PASS;
}

ALWAYS void ends_of(struct bpf_sock_ops *ctx, struct connection *c)
{
	__u32 family = READ(ctx->family);
	__u32 peer4 = READ(ctx->local_ip4), local4 = READ(ctx->remote_ip4);
	__u32 peer_port = READ(ctx->local_port), local_port = READ(ctx->remote_port);
	__u32 p0 = READ(ctx->local_ip6[0]), p1 = READ(ctx->local_ip6[1]);
	__u32 p2 = READ(ctx->local_ip6[2]), p3 = READ(ctx->local_ip6[3]);
	__u32 l0 = READ(ctx->remote_ip6[0]), l1 = READ(ctx->remote_ip6[1]);
	__u32 l2 = READ(ctx->remote_ip6[2]), l3 = READ(ctx->remote_ip6[3]);

	if (family == INET6 && (l0 | l1 | (l2 ^ bpf_htonl(0xffff)))) {
		c->peer[0] = p0;
		c->peer[1] = p1;
		c->peer[2] = p2;
		c->peer[3] = p3;
		c->local[0] = l0;
		c->local[1] = l1;
		c->local[2] = l2;
		c->local[3] = l3;
	} else {
		c->peer[0] = c->peer[1] = c->local[0] = c->local[1] = 0;
		c->peer[2] = c->local[2] = bpf_htonl(0xffff);
		c->peer[3] = peer4;
		c->local[3] = local4;
	}
	c->peer_port = bpf_htons(peer_port);		// host order
	c->local_port = bpf_htons(bpf_ntohl(local_port));	// network order, in the upper half of 32 bits
}

ALWAYS struct mine *written_down(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk ? bpf_sk_storage_get(&mine, sk, 0, 0) : 0;
}

// Removes the socket's record, unless it is a later socket's by now.
ALWAYS int remove_record(const struct mine *noted)
{
	struct caller *now = bpf_map_lookup_elem(&callers, &noted->connection);

	return now && now->socket == noted->caller.socket && !bpf_map_delete_elem(&callers, &noted->connection);
}

ALWAYS void publish(struct bpf_sock_ops *ctx, struct mine *noted)
{
	if (!noted->caller.pod)
		return;
	ends_of(ctx, &noted->connection);
	if (bpf_map_update_elem(&callers, &noted->connection, &noted->caller, BPF_ANY)) {
		count(OFOPS + LOST);
		return;
	}
	if (!take_place(noted)) {
		remove_record(noted);
		count(OFOPS + LOST);
		return;
	}
	count(OFOPS + NOTED);
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

// What the agent did not take goes with its socket.
ALWAYS void withdraw(const struct mine *noted)
{
	if (remove_record(noted))
		count(OFOPS + ENDED);
}

SEC("sockops")
int seawall_ops(struct bpf_sock_ops *ctx)
{
	__u32 op = ctx->op;
	struct mine *noted;

	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_STATE_CB)
		return PASS;
	if (op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] != BPF_TCP_CLOSE)
		return PASS;
	noted = written_down(ctx);
	if (!noted)
		return PASS;
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB)
		publish(ctx, noted);
	else
		withdraw(noted);
	return PASS;
}

// These do nothing. One that can be attached to a group shows that no program is there which ours would switch off (`attach.rs`).
SEC("cgroup/connect4")
int probe4(struct bpf_sock_addr *ctx)
{
	return PASS;
}

SEC("cgroup/connect6")
int probe6(struct bpf_sock_addr *ctx)
{
	return PASS;
}

SEC("sockops")
int probe_ops(struct bpf_sock_ops *ctx)
{
	return PASS;
}

char _license[] SEC("license") = "Apache-2.0";
