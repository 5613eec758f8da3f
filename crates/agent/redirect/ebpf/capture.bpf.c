// SPDX-License-Identifier: Apache-2.0
//
// Three programs for the cgroup of the node's pods. `connect4` and `connect6` send a pod's connect to a cloud's metadata address to
// the agent, and store the connection's owner on the socket. They can leave the node's own network alone (`passed_netns`). `sockops` publishes the owner under the connection's addresses and ports.
// It runs after the kernel has chosen them and before the first packet leaves, so the record exists before the agent can accept.
//
// The programs refuse (EPERM) each connect that they cannot decide: without an agent, a pod or memory. They also refuse a connect beyond
// the pod's share of the records. Only an agent's own pod, and sockets of the namespace in `passed_netns`, reach a metadata address. The programs read only contexts of the user
// API, so they need no kernel's types, and one object runs on all kernels.
//
// `target.rs`, `connection_owners.rs` and `ebpf_counters.rs` use the same layouts. `pins.rs` compares the sizes when it opens a map.
// Another layout needs another directory of pins (`pins.rs`).

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

// The kind of a destination address.
enum place { ELSEWHERE, METADATA, CONTAINERS };

// Slots of `counts`: eight for each program. `sockops` needs three, and its other slots hold two more for each connect program.
enum count { CAPTURED, DIRECT, EXEMPT, NO_AGENT, NO_POD, NO_SERVICE, TOO_MANY_WAITING, UNRESPONSIVE_AGENT };
enum published { NOTED, ENDED, LOST };
enum more { NODE_NETWORK, NO_FAMILY };
#define SLOTS 8
#define OF4 0
#define OF6 SLOTS
#define OFOPS (2 * SLOTS)
#define MORE(slots) (OFOPS + 3 + 2 * ((slots) / SLOTS))

// A pod can have `SHARE` records, and a connect looks at `TRIES` of the pod's places for records. It looks at half of them from the place
// that the pod took last, because under overload the oldest record frees the next place. It looks at the other half from a random place,
// because old records can fill neighbouring places.
#define SHARE 512
#define TRIES 8
#define ROWS 64
#define HINTS 4096

// An agent whose last beat is at least this old hangs or is stopped, in nanoseconds.
#define SILENCE 3000000000LL

// The target of captured connections, and the location of the pods' cgroups. Addresses and ports are in network order; 0 means none.
struct target {
	__u32 v4;
	__u16 metadata;
	__u16 containers;
	__u32 v6[4];
	__u32 level;		// the depth of `kubepods` in the cgroup tree
	__u16 self;		// the port at which an agent connects to itself; captured connects do not go there
	__u16 seat;		// the slot of the agent's listener in `listeners`
	__u64 kubepods;		// the id of the pods' parent cgroup
	__u64 qos[2];		// the ids of the QoS cgroups between `kubepods` and most pods
	__u64 exempt[2];	// the cgroups of the agents' own pods, two while one agent replaces another
	__u64 node;		// the cookie of the node's own network namespace
};

struct caller {
	__u64 pod;		// the id of the pod's cgroup
	__u64 netns;		// the cookie of the socket's network namespace
	__u64 socket;		// the socket's cookie
};

// A connection as the agent sees it, in network order, with IPv4 addresses as IPv4-mapped addresses. In a network namespace that a pod
// creates, the pod can use any address, even the agent's or another pod's. So addresses and ports alone prove nothing. `owner` is the part
// that a pod cannot choose: the pod's cgroup, or 0 in the node's own namespace, where the kernel keeps addresses and ports unique.
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

// A place of a pod, which names one of the pod's records. The place is free once this record is no longer in `callers`. Nothing else frees
// the place, so each removal of the record does: by the agent, by the end of the socket, or by the map, which evicts the oldest record.
struct waiter {
	struct bpf_spin_lock lock;
	__u32 changes;		// grows with each record that this place names
	struct connection connection;
	__u64 socket;		// the socket's cookie
};

// A hash with one entry instead of an array. An update of a hash replaces the whole value, so no program reads half of an old target and
// half of a new one.
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

// The records of connections that wait for accept. The agent deletes a record that it has used. If a socket closes earlier, `sockops`
// deletes its record.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SHARE * ROWS);
	__type(key, struct connection);
	__type(value, struct caller);
} callers SEC(".maps");

// The pods' places. Each pod has one place in each of `SHARE` columns. The pod and the column determine the row, so two pods share one in
// 64 of their places, and no pod can choose which places these are.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARE * ROWS);
	__type(key, __u32);
	__type(value, struct waiter);
} waiters SEC(".maps");

// The column of the place that a pod took last. It determines only the first place to look at, so pods can share an entry.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HINTS);
	__type(key, __u32);
	__type(value, __u32);
} hints SEC(".maps");

// One listening socket of each live agent. The kernel removes a socket from this map when it closes the socket, before another process can
// get its port. So no connect goes to a pod on the node's network that listens at the port of a dead agent.
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} listeners SEC(".maps");

// The time of each agent's last beat, by its slot in `listeners` (CLOCK_MONOTONIC, nanoseconds). A beat means that the agent's threads run.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} beats SEC(".maps");

// The cookie of the network namespace whose sockets reach metadata addresses: the node's, or 0 for none. `attach` writes it before it attaches
// the programs, so it holds before the first agent and without one. It is not a part of `struct target`, which agents replace and remove.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} passed_netns SEC(".maps");

// The cgroups of the pods of trusted proxies (`identity.trustedProxies`), which connect from other pods' network namespaces. The agent writes
// them. They decide only who is charged for a record.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u32);
} proxies SEC(".maps");

// The namespaces of the sockets that `learn4` looks for, by the sockets' cookies.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u64);
} learned_netns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3 * SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

// Reads a field before any branch, hidden from the compiler. Otherwise the compiler merges two branches into one load through a pointer
// that it moved. The verifier refuses such a load from a context ("dereference of modified ctx ptr") and, without CAP_PERFMON, from a map.
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

// Excludes UDP, because 169.254.169.254 is also a DNS server on Google's machines.
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

// Returns the cgroup of the pod that connects; 0 if no pod connects. It is the lower of the two levels if the upper level is a QoS cgroup.
// Cgroups that a pod creates below its own cgroup change nothing. A process outside the pods' tree can hold a pod's socket, so the function
// checks the tree first.
ALWAYS __u64 pod_of_caller(const struct target *to)
{
	__u64 upper, lower;

	if (!to->kubepods || bpf_get_current_ancestor_cgroup_id(to->level) != to->kubepods)
		return 0;
	upper = bpf_get_current_ancestor_cgroup_id(to->level + 1);
	lower = bpf_get_current_ancestor_cgroup_id(to->level + 2);
	return upper == to->qos[0] || upper == to->qos[1] ? lower : upper;
}

// Decides by cgroup instead of a mark on the socket, because a pod with CAP_NET_ADMIN can set marks.
ALWAYS int is_exempt(const struct target *to, __u64 pod)
{
	return pod && (pod == to->exempt[0] || pod == to->exempt[1]);
}

// True for a socket of the node's own network, if such sockets pass. A pod can give its namespace any address, but not this cookie. It gets
// such a socket only from a process on the node's network. A cookie of 0 is no namespace's, so 0 passes nobody.
ALWAYS int passes_by_network(struct bpf_sock_addr *ctx)
{
	__u32 only = 0;
	__u64 *passed = bpf_map_lookup_elem(&passed_netns, &only);
	__u64 cookie = passed ? *passed : 0;

	return cookie && bpf_get_netns_cookie(ctx) == cookie;
}

// Clears the owner that an earlier connect stored on the socket. A disconnected socket can connect again, from another process and to
// another address.
ALWAYS void forget_last(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct mine *noted = sk ? bpf_sk_storage_get(&mine, sk, 0, 0) : 0;

	if (noted)
		noted->caller.pod = 0;
}

// Stores the owner on the socket. Returns 0 if that fails. The kernel has not chosen the connection's source address and port yet.
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

// Returns who is charged for a pod's record: the pod itself. For a trusted proxy, it is the network namespace in which the proxy connects.
// Otherwise one pod behind the proxy could use up the share of all others. A pod cannot choose the namespace that the proxy enters. Ids of
// cgroups and cookies of namespaces are small numbers, so the complement keeps them apart.
ALWAYS __u64 charged(__u64 pod, __u64 netns)
{
	return bpf_map_lookup_elem(&proxies, &pod) ? ~netns : pod;
}

// Returns a hash of pod and column (MurmurHash3's finalizer). With a weaker hash, two pods would share many neighbouring places.
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

// True if the record that a place names no longer waits. Reads without the lock, so another CPU can change the place meanwhile.
ALWAYS int seems_free(const struct waiter *place)
{
	const struct caller *now = bpf_map_lookup_elem(&callers, &place->connection);

	return !now || now->socket != place->socket;
}

// Returns the next column to look at, after `tried` looks.
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

// Takes a place for a record. The record must already be in `callers`, or another connect would see this place as free. Since the check at
// the connect, others can have taken the last place: connects on other CPUs, or connects whose SYN waits for data (TCP fast open). The
// read between the two locks counts only if `changes` is the same under both locks.
ALWAYS int take_place(const struct mine *noted)
{
	__u64 pod = charged(noted->caller.pod, noted->caller.netns);
	__u32 *hint = hint_of(pod);
	__u32 column, changes;
	struct waiter *place;
	int is_taken;

	// Every key has an entry. The pointer is tested once: without CAP_PERFMON, the verifier of older kernels (6.1) follows a second test
	// of the same pointer into the branch that cannot be taken, and refuses the store there.
	if (!hint)
		return 0;
	column = *hint;
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
		*hint = column;
		return 1;
	}
	return 0;
}

// Returns the reason why the agent cannot take a connect, as a slot of `counts`; 0 if it can.
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

// Returns the reason to refuse a pod's connect to the agent, as a slot of `counts`; 0 if the owner is stored. With `is_own`, an agent
// connects to itself, and its listener and beat are not checked.
ALWAYS __u32 refusal_of(struct bpf_sock_addr *ctx, const struct target *to, __u64 pod, int is_own)
{
	__u32 lack = is_own ? 0 : lack_of(to);

	if (lack)
		return lack;
	if (pod && !has_free_place(charged(pod, bpf_get_netns_cookie(ctx))))
		return TOO_MANY_WAITING;
	return write_down(ctx, to, pod) ? 0 : NO_POD;
}

// Decides a connect to the agent's own address, like a captured connect. For example, a sidecar proxy dials the address that its client
// dialled. An agent must reach itself before it is ready, even while the target is still a dead agent at the same port.
ALWAYS int direct(struct bpf_sock_addr *ctx, const struct target *to, __u32 port, __u32 slots)
{
	__u64 pod = pod_of_caller(to);

	__u32 refusal = refusal_of(ctx, to, pod, port == to->self || is_exempt(to, pod));

	if (refusal)
		return refuse(slots + refusal);
	count(slots + DIRECT);
	return PASS;
}

// Returns the port to which a connect goes, in network order; 0 if `*verdict` already decides the connect.
ALWAYS __u32 port_for(struct bpf_sock_addr *ctx, const struct target *to, enum place place, __u32 port,
		      __u32 slots, int *verdict)
{
	__u32 metadata, containers, service, refusal;
	__u64 pod;

	if (passes_by_network(ctx)) {
		count(MORE(slots) + NODE_NETWORK);
		*verdict = PASS;
		return 0;
	}
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
		return refuse(MORE(OF4) + NO_FAMILY);
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

// A connect to an IPv4-mapped address goes to the agent's IPv4 address. A connect to an IPv6 address goes to the agent's IPv6 address or,
// if there is none, to its IPv4-mapped address. An IPv6-only socket cannot reach a mapped address (ENETUNREACH).
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
			return refuse(MORE(OF6) + NO_FAMILY);
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

// Removes the socket's record, unless a later socket has replaced the record.
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

// Removes the record of a socket that closes before the agent has taken the record.
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

// These programs do nothing. If one can be attached to a cgroup, our programs switch off no other program there (`attach.rs`).
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

// Passes each connect, and writes down the network namespace of the one socket that `attach` asks about. No pod has that socket's cookie.
SEC("cgroup/connect4")
int learn4(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	__u64 *learned = bpf_map_lookup_elem(&learned_netns, &cookie);

	if (learned)
		*learned = bpf_get_netns_cookie(ctx);
	return PASS;
}

char _license[] SEC("license") = "Apache-2.0";
