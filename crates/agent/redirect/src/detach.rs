//! Detaches the redirect completely: all links, maps and directories.

use crate::error::Error;
use crate::pins::{LOCK_TIMEOUT, Pins};

/// Detaches all programs of every version and layout.
///
/// Afterwards pods reach the real metadata server, unless for example netfilter rules drop their packets. If nothing is attached,
/// the function does nothing.
///
/// # Errors
/// The kernel refuses to unpin an object; the error contains the cause.
pub fn detach(pins: &Pins) -> Result<(), Error> {
    let _turn = pins.lock(LOCK_TIMEOUT)?;
    pins.remove_all()
}
