//! Finds the admin address of the agent that uses a configuration file, for `probe` and `status`.
//!
//! A running agent keeps its configuration when it refuses a changed file. Probes of this agent must not fail because of the
//! refused file, so this module ignores mistakes in keys other than `admin` and `adminSocket`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use seawall_config::{Document, values};

use super::addresses::{ADDRESS_FORMAT_HINT, ADMIN_PORT, loopback_address};
use super::file::{ConfigFileError, read_text};

/// The path of the admin socket in the shipped manifests. Probes try this socket if the configuration file cannot be read or
/// parsed.
const USUAL: &str = "/run/seawall/admin.sock";

/// The TCP address and the socket file of the admin server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdminEndpoint {
    pub(crate) tcp_address: SocketAddr,
    pub(crate) socket: Option<PathBuf>,
}

impl AdminEndpoint {
    /// Returns the addresses in a configuration file.
    ///
    /// # Errors
    /// The file cannot be read, and the socket file of the shipped manifests does not exist.
    pub(crate) fn from_file(path: &Path) -> Result<Self, ConfigFileError> {
        let base = path.parent().unwrap_or(Path::new(""));
        match read_text(path) {
            Ok(text) => Ok(Self::read(&text, base)),
            Err(error) => Self::usual().ok_or(error),
        }
    }

    /// Returns the addresses of the shipped manifests if their socket file exists.
    fn usual() -> Option<Self> {
        let socket = PathBuf::from(USUAL);
        socket.exists().then(|| Self { tcp_address: loopback_address(ADMIN_PORT), socket: Some(socket) })
    }

    fn read(text: &str, base: &Path) -> Self {
        let Ok(document) = Document::parse(text) else {
            return Self::usual().unwrap_or(Self { tcp_address: loopback_address(ADMIN_PORT), socket: None });
        };
        let root = document.root();
        Self {
            tcp_address: root
                .node_of_key("admin")
                .text(ADDRESS_FORMAT_HINT, |text| text.parse().ok())
                .unwrap_or(loopback_address(ADMIN_PORT)),
            socket: root.node_of_key("adminSocket").text("", |text| values::resolve_path(text, base)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_agent_refuses_still_says_where_it_is_asked() {
        let read = |text: &str| AdminEndpoint::read(text, Path::new("/etc/seawall"));
        let door = read("admin: \"127.0.0.1:7\"\nadminSocket: /run/a.sock\nnonsense: 1\nlisten: [here]\n");
        let expected =
            AdminEndpoint { tcp_address: ([127, 0, 0, 1], 7).into(), socket: Some("/run/a.sock".into()) };
        assert_eq!(door, expected);
        assert_eq!(read("google: {}\n"), AdminEndpoint { tcp_address: loopback_address(8989), socket: None });
        assert_eq!(read("listen: [").tcp_address, loopback_address(8989));
    }
}
