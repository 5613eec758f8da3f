//! Detaches the redirect completely: all links, maps and directories.

use crate::error::Error;
use crate::pins::{LOCK_TIMEOUT, Pins};

/// Detaches all programs of every version and layout.
///
/// From then on pods reach the real server, unless something else prevents it. Where nothing is attached, nothing happens.
///
/// # Errors
/// The kernel refuses to unpin something; the error says why.
pub fn detach(pins: &Pins) -> Result<(), Error> {
    let _turn = pins.lock(LOCK_TIMEOUT)?;
    pins.clear_all()
}
