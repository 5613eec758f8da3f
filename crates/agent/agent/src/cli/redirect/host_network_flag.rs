//! Reads the flag that selects the identity of pods on the node's network.

use lexopt::Error;

use crate::cli::flag_parser::Flags;

/// The flag that selects the identity of pods on the node's network.
pub(super) const HOST_NETWORK_PODS: &str = "host-network-pods=";

/// True if the flags let pods on the node's network keep the real metadata server. This is the default.
///
/// # Errors
/// The flag has another value than `node` or `seawall`.
pub(super) fn leaves_host_network_pods(flags: &Flags) -> Result<bool, Error> {
    let name = HOST_NETWORK_PODS.trim_end_matches('=');
    match flags.value::<String>(name, "node or seawall")?.as_deref() {
        None | Some("node") => Ok(true),
        Some("seawall") => Ok(false),
        Some(_) => Err(flags.invalid_value_error(name, "node or seawall")),
    }
}
