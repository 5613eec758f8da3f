//! Defines the kernel hooks to which the programs attach.

use std::fmt;

/// A kernel hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Events of a cgroup's TCP sockets (`BPF_CGROUP_SOCK_OPS`).
    Sockops,
    /// `connect` to an IPv4 address (`BPF_CGROUP_INET4_CONNECT`).
    Connect4,
    /// `connect` of an IPv6 socket to an IPv6 address or to an IPv4-mapped address (`BPF_CGROUP_INET6_CONNECT`).
    Connect6,
}

impl Hook {
    /// All hooks in the order of attachment. Sockops comes first, so that each captured connection is recorded.
    pub const ALL: [Self; 3] = [Self::Sockops, Self::Connect4, Self::Connect6];

    /// Returns the hook's name, which is also the start of its pins' names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sockops => "sockops",
            Self::Connect4 => "connect4",
            Self::Connect6 => "connect6",
        }
    }

    /// Returns the program's name in the object file and in the kernel.
    pub(crate) const fn program_name(self) -> &'static str {
        match self {
            Self::Sockops => "seawall_ops",
            Self::Connect4 => "seawall4",
            Self::Connect6 => "seawall6",
        }
    }

    /// Returns the name of this hook's program that does nothing. [`mod@crate::attach`] attaches it for a moment to detect conflicting
    /// programs.
    pub(crate) const fn probe_program_name(self) -> &'static str {
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
