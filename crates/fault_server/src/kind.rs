//! The list of what can be planted: each plant's name, the cause that it is, its keys with their defaults.
//!
//! Reading, help, truth and drawing all follow this list. The causes' slugs are those of `find`; this crate does not know that one,
//! the tool's tests compare the two.

/// Something that can be planted.
#[derive(Debug, PartialEq)]
pub struct FaultKind {
    /// As it is written.
    pub name: &'static str,
    /// The cause that `find` should name; none for what only disturbs others.
    pub class: Option<&'static str>,
    /// What it does, one sentence.
    pub about: &'static str,
    /// What can be said of it.
    pub keys: &'static [FaultParameter],
}

/// One thing that can be said of a plant.
#[derive(Debug, PartialEq)]
pub struct FaultParameter {
    /// As it is written.
    pub name: &'static str,
    /// What kind of value it has.
    pub form: ParameterForm,
    /// The value when none is given, as it is written.
    pub default: &'static str,
}

/// How a value is written. Within, each is a number: spans in seconds, words by their place in the list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterForm {
    /// A number above 0, a second: 0.001 to 10,000,000.
    Rate,
    /// A whole number in these bounds.
    Count(u32, u32),
    /// A number in these bounds.
    Number(f64, f64),
    /// A duration up to an hour, such as `5ms`; 0 where the flag allows it.
    Span {
        /// Whether it may be 0, which then stands for none.
        may_be_zero: bool,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

impl FaultKind {
    /// Everything that can be planted, in the order of `--help`.
    pub const ALL: &[Self] = ALL;

    /// That of a name; a cause's slug is as good.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let by_class = || Self::with_class(name).next();
        ALL.iter().find(|kind| kind.name == name).or_else(by_class)
    }

    /// Those that are this cause.
    pub fn with_class(class: &str) -> impl Iterator<Item = &'static Self> {
        ALL.iter().filter(move |kind| kind.class == Some(class))
    }
}

const fn key(name: &'static str, form: ParameterForm, default: &'static str) -> FaultParameter {
    FaultParameter { name, form, default }
}

const SOME: ParameterForm = ParameterForm::Span { may_be_zero: false };
const SOME_OR_NONE: ParameterForm = ParameterForm::Span { may_be_zero: true };
const STATUS: ParameterForm = ParameterForm::Count(400, 599);
const CV: ParameterForm = ParameterForm::Number(0.0, 20.0);
const WORKERS: ParameterForm = ParameterForm::Count(1, 10_000);
/// Most requests that wait in a plant: what a queue holds is memory.
const QUEUE: ParameterForm = ParameterForm::Count(0, 100_000);
/// Most bytes of a body: each kind of answer is kept whole.
pub const MOST_BODY: u32 = 1 << 20;
const SHARE: ParameterForm = ParameterForm::Number(0.001, 0.999);
const FACTOR: ParameterForm = ParameterForm::Number(1.0, 1_000.0);

/// The defaults are the plants of table 2 of the study that `find` rests on: most can do 200/s.
const ALL: &[FaultKind] = &[
    FaultKind {
        name: "rate-limiter",
        class: Some("rate-limiter"),
        about: "refuses what is beyond `rate`; `bucket` requests may come at once. With `window`, counts in windows of that length instead",
        keys: &[
            key("rate", ParameterForm::Rate, "200"),
            key("bucket", ParameterForm::Count(1, 10_000_000), "40"),
            key("status", STATUS, "429"),
            key("window", SOME_OR_NONE, "0s"),
        ],
    },
    FaultKind {
        name: "hanging-limiter",
        class: Some("hanging-limiter"),
        about: "as rate-limiter, but what is beyond gets no answer: its connection is closed after `hang`",
        keys: &[
            key("rate", ParameterForm::Rate, "200"),
            key("bucket", ParameterForm::Count(1, 10_000_000), "20"),
            key("hang", SOME, "30s"),
        ],
    },
    FaultKind {
        name: "delaying-limiter",
        class: Some("delaying-limiter"),
        about: "lets one through each 1/`rate`; `queue` may wait for that, the others are refused",
        keys: &[
            key("rate", ParameterForm::Rate, "200"),
            key("queue", QUEUE, "100"),
            key("status", STATUS, "503"),
        ],
    },
    FaultKind {
        name: "pool",
        class: Some("pool-saturation"),
        about: "`workers`, each busy for `service` with a request; `queue` may wait. `cv` is service's deviation over its mean: 0 fixed, 1 exponential, else lognormal",
        keys: &[
            key("workers", WORKERS, "8"),
            key("service", SOME, "40ms"),
            key("cv", CV, "0"),
            key("queue", QUEUE, "100000"),
            key("status", STATUS, "503"),
        ],
    },
    FaultKind {
        name: "cpu",
        class: Some("cpu-saturation"),
        about: "one thread that computes for `work` of CPU time for each request, one after the other: real work",
        keys: &[key("work", SOME, "2ms"), key("queue", QUEUE, "100000"), key("status", STATUS, "503")],
    },
    FaultKind {
        name: "concurrency-cap",
        class: Some("concurrency-cap"),
        about: "`places` for requests at once, each taken for `service` and for as long as the plants after it take; without a place: refused",
        keys: &[
            key("places", WORKERS, "10"),
            key("service", SOME_OR_NONE, "50ms"),
            key("cv", CV, "0.5"),
            key("status", STATUS, "503"),
        ],
    },
    FaultKind {
        name: "connection-cap",
        class: Some("connection-cap"),
        about: "`connections` at once, each request takes `service`. One more is closed, or with how=backlog not accepted: the kernel completes `backlog` + 1 that nobody reads",
        keys: &[
            key("connections", ParameterForm::Count(1, 60_000), "20"),
            key("service", SOME_OR_NONE, "100ms"),
            key("cv", CV, "0"),
            key("how", ParameterForm::Word(&["close", "backlog"]), "close"),
            key("backlog", ParameterForm::Count(0, 65_535), "1024"),
        ],
    },
    FaultKind {
        name: "quota",
        class: Some("cfs-throttling"),
        about: "one thread, `work` of CPU time for each request, that may run for `share` of each `period` and stands still for the rest (in simulated time)",
        keys: &[
            key("share", SHARE, "0.2"),
            key("work", SOME, "1ms"),
            key("cv", CV, "0"),
            key("period", SOME, "100ms"),
        ],
    },
    FaultKind {
        name: "churn",
        class: Some("churn-cost"),
        about: "each new connection costs `cost`, one after the other, before its first request is looked at",
        keys: &[key("cost", SOME, "5ms")],
    },
    FaultKind {
        name: "keep-alive",
        class: Some("keep-alive-race"),
        about: "a connection serves `after` requests and is closed without notice: when the next has come (how=cut) or with the last answer (how=close). Closed, too, when idle for `idle`",
        keys: &[
            key("after", ParameterForm::Count(0, 10_000_000), "100"),
            key("how", ParameterForm::Word(&["cut", "close"]), "cut"),
            key("idle", SOME_OR_NONE, "0s"),
        ],
    },
    FaultKind {
        name: "timeout-chain",
        class: Some("timeout-chain"),
        about: "something before a pool gives up on it after `timeout`, tries `tries` times and answers 504; what was given up is still worked on (late=done) or not (late=dropped)",
        keys: &[
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
        class: Some("pauses"),
        about: "everything stands still for `length` every `every`, off by up to half of `jitter` (a share of `every`)",
        keys: &[
            key("length", SOME, "200ms"),
            key("every", SOME, "2s"),
            key("jitter", ParameterForm::Number(0.0, 1.0), "0"),
        ],
    },
    FaultKind {
        name: "uneven",
        class: Some("uneven-balancing"),
        about: "`servers` in turn, each a pool; one is `slow` times as slow and gets `weight` times as many. header=yes: answers name theirs in Server-Id",
        keys: &[
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
        class: Some("bandwidth"),
        about: "all answers share a link of `rate` bytes a second; a body has `body` bytes",
        keys: &[
            key("rate", ParameterForm::Number(1.0, 1e11), "2500000"),
            key("body", ParameterForm::Count(0, MOST_BODY), "10000"),
        ],
    },
    FaultKind {
        name: "dns",
        class: Some("dns"),
        about: "a DNS server at UDP `port` (0: a free one) that says that every name is here, after `delay`; what is beyond `rate` questions a second (0: any) gets no answer. Ask it: attack -resolvers",
        keys: &[
            key("port", ParameterForm::Count(0, 65_535), "0"),
            key("delay", SOME_OR_NONE, "200ms"),
            key("rate", ParameterForm::Number(0.0, 1e7), "0"),
        ],
    },
    FaultKind {
        name: "ports",
        class: Some("ports"),
        about: "nothing of the server's: its clients run out of local ports by themselves (attack -requests-per-connection 1 from one -laddr in a small ip_local_port_range)",
        keys: &[],
    },
    FaultKind {
        name: "noise",
        class: None,
        about: "each answer comes later by a time of its own, `delay` on average, exponential",
        keys: &[key("delay", SOME, "1ms")],
    },
    FaultKind {
        name: "drift",
        class: None,
        about: "all that works becomes slower and faster by `amplitude` (standard deviation, a share), remembering for `time`",
        keys: &[key("amplitude", ParameterForm::Number(0.001, 0.5), "0.05"), key("time", SOME, "30s")],
    },
    FaultKind {
        name: "bursts",
        class: None,
        about: "load of its own takes `share` of all that works, for `length` every `every`",
        keys: &[key("share", SHARE, "0.3"), key("length", SOME, "1s"), key("every", SOME, "15s")],
    },
    FaultKind {
        name: "warm-up",
        class: None,
        about: "from the first request on, all that works does `share` of what it can, and nears all of it over `time`",
        keys: &[key("share", SHARE, "0.4"), key("time", SOME, "5s")],
    },
    FaultKind {
        name: "credits",
        class: None,
        about: "all that works is `times` as fast as long as credits last: `amount` of them, one comes each second",
        keys: &[key("times", FACTOR, "2"), key("amount", SOME, "15s")],
    },
    FaultKind {
        name: "collapse",
        class: None,
        about: "all that works is `factor` times as slow while requests wait for longer than `wait`",
        keys: &[key("factor", FACTOR, "1.5"), key("wait", SOME, "150ms")],
    },
    FaultKind {
        name: "metastable",
        class: None,
        about: "as collapse, and stays so until nothing has come for `rest`",
        keys: &[key("factor", FACTOR, "1.5"), key("wait", SOME, "150ms"), key("rest", SOME, "3s")],
    },
];
