//! The places in the kernel that programs are attached to.

use std::fmt;

/// A place in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// What TCP sockets of a group do (`BPF_CGROUP_SOCK_OPS`).
    Sockops,
    /// `connect` to an IPv4 address (`BPF_CGROUP_INET4_CONNECT`).
    Connect4,
    /// `connect` of an IPv6 socket, to a mapped IPv4 address, too (`BPF_CGROUP_INET6_CONNECT`).
    Connect6,
}

impl Hook {
    /// All of them, in the order in which they are attached: no connection is captured that nobody would note.
    pub const ALL: [Self; 3] = [Self::Sockops, Self::Connect4, Self::Connect6];

    /// What pins begin with.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sockops => "sockops",
            Self::Connect4 => "connect4",
            Self::Connect6 => "connect6",
        }
    }

    /// The program's name in the object, and what the kernel calls it.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Sockops => "seawall_ops",
            Self::Connect4 => "seawall4",
            Self::Connect6 => "seawall6",
        }
    }

    /// A program that does nothing there.
    pub(crate) const fn probe(self) -> &'static str {
        match self {
            Self::Sockops => "probe_ops",
            Self::Connect4 => "probe4",
            Self::Connect6 => "probe6",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
