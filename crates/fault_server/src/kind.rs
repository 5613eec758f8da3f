//! The table of faults: each fault's name, its cause class, and its parameters with their defaults.
//!
//! The parser, the help text, the ground truth and the random draw all use this table. The cause slugs are those of `find`. This crate
//! does not depend on `find`; a test in the tool compares the slugs.

/// A kind of fault that the server can inject.
#[derive(Debug, PartialEq)]
pub struct FaultKind {
    /// The name in `--fault`, such as `pool`.
    pub name: &'static str,
    /// The cause that `find` should name; none for a mere disturbance such as `noise`.
    pub cause_class: Option<&'static str>,
    /// The help text.
    pub about: &'static str,
    /// The parameters, in the order of the help text.
    pub parameters: &'static [FaultParameter],
}

/// One parameter of a fault, such as `workers`.
#[derive(Debug, PartialEq)]
pub struct FaultParameter {
    /// The name before `=`, such as `workers`.
    pub name: &'static str,
    /// The syntax and range of the value.
    pub form: ParameterForm,
    /// The default value as text, such as `40ms`.
    pub default: &'static str,
}

/// The syntax of a value. Each value is stored as a number: durations in seconds, words as their index in the list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterForm {
    /// A rate per second, from 0.001 to 10,000,000.
    Rate,
    /// A whole number in these bounds.
    Count(u32, u32),
    /// A number in these bounds.
    Number(f64, f64),
    /// A duration of at most an hour, such as `5ms`.
    Duration {
        /// True if the duration may be 0, which turns the effect off.
        may_be_zero: bool,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

impl FaultKind {
    /// All kinds of faults, in the order of `--help`.
    pub const ALL: &[Self] = ALL;

    /// Finds a kind by its name or by the slug of its cause class.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let by_class = || Self::all_of_cause_class(name).next();
        ALL.iter().find(|kind| kind.name == name).or_else(by_class)
    }

    /// Returns the kinds of faults with this cause class.
    pub fn all_of_cause_class(class: &str) -> impl Iterator<Item = &'static Self> {
        ALL.iter().filter(move |kind| kind.cause_class == Some(class))
    }
}

const fn key(name: &'static str, form: ParameterForm, default: &'static str) -> FaultParameter {
    FaultParameter { name, form, default }
}

const SOME: ParameterForm = ParameterForm::Duration { may_be_zero: false };
const SOME_OR_NONE: ParameterForm = ParameterForm::Duration { may_be_zero: true };
const STATUS: ParameterForm = ParameterForm::Count(400, 599);
const CV: ParameterForm = ParameterForm::Number(0.0, 20.0);
const WORKERS: ParameterForm = ParameterForm::Count(1, 10_000);
/// The allowed queue lengths. The bound limits the memory of a queue.
const QUEUE: ParameterForm = ParameterForm::Count(0, 100_000);
/// The largest body in bytes. The server keeps each kind of response in memory.
pub const MOST_BODY: u32 = 1 << 20;
const SHARE: ParameterForm = ParameterForm::Number(0.001, 0.999);
const FACTOR: ParameterForm = ParameterForm::Number(1.0, 1_000.0);

/// The faults. The defaults are from table 2 of the study behind `find`; most of them sustain 200 requests/s.
const ALL: &[FaultKind] = &[
    FaultKind {
        name: "rate-limiter",
        cause_class: Some("rate-limiter"),
        about: "refuses requests above `rate` per second and admits bursts of up to `bucket`. With `window`, counts requests in fixed windows of that length instead",
        parameters: &[
            key("rate", ParameterForm::Rate, "200"),
            key("bucket", ParameterForm::Count(1, 10_000_000), "40"),
            key("status", STATUS, "429"),
            key("window", SOME_OR_NONE, "0s"),
        ],
    },
    FaultKind {
        name: "hanging-limiter",
        cause_class: Some("hanging-limiter"),
        about: "like rate-limiter, but an excess request gets no response: the server closes its connection after `hang`",
        parameters: &[
            key("rate", ParameterForm::Rate, "200"),
            key("bucket", ParameterForm::Count(1, 10_000_000), "20"),
            key("hang", SOME, "30s"),
        ],
    },
    FaultKind {
        name: "delaying-limiter",
        cause_class: Some("delaying-limiter"),
        about: "a leaky bucket that passes one request every 1/`rate` seconds. Up to `queue` requests wait; the server refuses further requests",
        parameters: &[
            key("rate", ParameterForm::Rate, "200"),
            key("queue", QUEUE, "100"),
            key("status", STATUS, "503"),
        ],
    },
    FaultKind {
        name: "pool",
        cause_class: Some("pool-saturation"),
        about: "each of `workers` workers serves one request at a time, for `service` per request. Up to `queue` requests wait. `cv` is the coefficient of variation of `service`: 0 fixed, 1 exponential, otherwise lognormal",
        parameters: &[
            key("workers", WORKERS, "8"),
            key("service", SOME, "40ms"),
            key("cv", CV, "0"),
            key("queue", QUEUE, "100000"),
            key("status", STATUS, "503"),
        ],
    },
    FaultKind {
        name: "cpu",
        cause_class: Some("cpu-saturation"),
        about: "one thread uses `work` of real CPU time per request and serves one request at a time",
        parameters: &[key("work", SOME, "2ms"), key("queue", QUEUE, "100000"), key("status", STATUS, "503")],
    },
    FaultKind {
        name: "concurrency-cap",
        cause_class: Some("concurrency-cap"),
        about: "the server accepts at most `places` concurrent requests and refuses further requests. Each accepted request holds its place for `service` and for the time that later faults add",
        parameters: &[
            key("places", WORKERS, "10"),
            key("service", SOME_OR_NONE, "50ms"),
            key("cv", CV, "0.5"),
            key("status", STATUS, "503"),
        ],
    },
    FaultKind {
        name: "connection-cap",
        cause_class: Some("connection-cap"),
        about: "the server accepts at most `connections` open connections; each request takes `service`. how=close: the server closes further connections. how=backlog: the server does not accept further connections; `backlog` + 1 connections wait in the kernel",
        parameters: &[
            key("connections", ParameterForm::Count(1, 60_000), "20"),
            key("service", SOME_OR_NONE, "100ms"),
            key("cv", CV, "0"),
            key("how", ParameterForm::Word(&["close", "backlog"]), "close"),
            key("backlog", ParameterForm::Count(0, 65_535), "1024"),
        ],
    },
    FaultKind {
        name: "quota",
        cause_class: Some("cfs-throttling"),
        about: "one thread with a simulated CPU quota: each request takes `work` of CPU time. The thread runs for at most `share` of each `period` and then stops until the next period begins",
        parameters: &[
            key("share", SHARE, "0.2"),
            key("work", SOME, "1ms"),
            key("cv", CV, "0"),
            key("period", SOME, "100ms"),
        ],
    },
    FaultKind {
        name: "churn",
        cause_class: Some("churn-cost"),
        about: "each new connection takes `cost` before its first request is read; the server sets up one connection at a time",
        parameters: &[key("cost", SOME, "5ms")],
    },
    FaultKind {
        name: "keep-alive",
        cause_class: Some("keep-alive-race"),
        about: "the server closes a connection without notice after `after` requests: when the next request arrives (how=cut) or right after the last response (how=close). The server also closes connections that are idle for `idle`",
        parameters: &[
            key("after", ParameterForm::Count(0, 10_000_000), "100"),
            key("how", ParameterForm::Word(&["cut", "close"]), "cut"),
            key("idle", SOME_OR_NONE, "0s"),
        ],
    },
    FaultKind {
        name: "timeout-chain",
        cause_class: Some("timeout-chain"),
        about: "a proxy in front of a pool: each try times out after `timeout`, and after `tries` tries the proxy responds 504. The pool finishes timed-out requests (late=done) or drops them (late=dropped)",
        parameters: &[
            key("workers", WORKERS, "8"),
            key("service", SOME, "40ms"),
            key("cv", CV, "0"),
            key("timeout", SOME, "1s"),
            key("tries", ParameterForm::Count(1, 10), "1"),
            key("late", ParameterForm::Word(&["done", "dropped"]), "done"),
        ],
    },
    FaultKind {
        name: "pauses",
        cause_class: Some("pauses"),
        about: "the whole server stalls for `length` once every `every`. Each stall begins early or late by up to half of `jitter`, a share of `every`",
        parameters: &[
            key("length", SOME, "200ms"),
            key("every", SOME, "2s"),
            key("jitter", ParameterForm::Number(0.0, 1.0), "0"),
        ],
    },
    FaultKind {
        name: "uneven",
        cause_class: Some("uneven-balancing"),
        about: "round robin over `servers` pools. One pool is `slow` times as slow and gets `weight` times as many requests. header=yes: each response names its server in Server-Id",
        parameters: &[
            key("servers", ParameterForm::Count(2, 64), "3"),
            key("workers", WORKERS, "4"),
            key("service", SOME, "12ms"),
            key("cv", CV, "0"),
            key("slow", FACTOR, "5"),
            key("weight", ParameterForm::Count(1, 100), "1"),
            key("header", ParameterForm::Word(&["no", "yes"]), "yes"),
        ],
    },
    FaultKind {
        name: "bandwidth",
        cause_class: Some("bandwidth"),
        about: "all responses share a link of `rate` bytes per second; a body has `body` bytes",
        parameters: &[
            key("rate", ParameterForm::Number(1.0, 1e11), "2500000"),
            key("body", ParameterForm::Count(0, MOST_BODY), "10000"),
        ],
    },
    FaultKind {
        name: "dns",
        cause_class: Some("dns"),
        about: "a DNS server on UDP `port` (0: any free port) that resolves every name to this server after `delay`. Above `rate` questions per second (0: no limit) it does not respond. Use it with attack -resolvers",
        parameters: &[
            key("port", ParameterForm::Count(0, 65_535), "0"),
            key("delay", SOME_OR_NONE, "200ms"),
            key("rate", ParameterForm::Number(0.0, 1e7), "0"),
        ],
    },
    FaultKind {
        name: "ports",
        cause_class: Some("ports"),
        about: "changes nothing in the server: the client runs out of local ports (attack -requests-per-connection 1 from one -laddr with a small ip_local_port_range)",
        parameters: &[],
    },
    FaultKind {
        name: "noise",
        cause_class: None,
        about: "delays each response by an exponentially distributed time with mean `delay`",
        parameters: &[key("delay", SOME, "1ms")],
    },
    FaultKind {
        name: "drift",
        cause_class: None,
        about: "the speed of all workers drifts at random: standard deviation `amplitude` (a share), correlation time `time`",
        parameters: &[key("amplitude", ParameterForm::Number(0.001, 0.5), "0.05"), key("time", SOME, "30s")],
    },
    FaultKind {
        name: "bursts",
        cause_class: None,
        about: "a noisy neighbour takes `share` of the workers' speed for `length` once every `every`",
        parameters: &[key("share", SHARE, "0.3"), key("length", SOME, "1s"), key("every", SOME, "15s")],
    },
    FaultKind {
        name: "warm-up",
        cause_class: None,
        about: "workers start at `share` of their full speed at the first request and approach full speed with time constant `time`",
        parameters: &[key("share", SHARE, "0.4"), key("time", SOME, "5s")],
    },
    FaultKind {
        name: "credits",
        cause_class: None,
        about: "workers are `times` times as fast while CPU credits last. The server starts with `amount` of credits and earns 1 s of credits per second",
        parameters: &[key("times", FACTOR, "2"), key("amount", SOME, "15s")],
    },
    FaultKind {
        name: "collapse",
        cause_class: None,
        about: "workers take `factor` times as long while requests wait longer than `wait`",
        parameters: &[key("factor", FACTOR, "1.5"), key("wait", SOME, "150ms")],
    },
    FaultKind {
        name: "metastable",
        cause_class: None,
        about: "like collapse, but workers stay slow until no request has arrived for `rest`",
        parameters: &[key("factor", FACTOR, "1.5"), key("wait", SOME, "150ms"), key("rest", SOME, "3s")],
    },
];
