//! Takes the programs off, and leaves nothing: no link, no map, no directory.

use crate::error::Error;
use crate::pins::{LOCK_TIMEOUT, Pins};

/// Detaches every version's programs of every layout. From then on pods reach the real server, where nothing else keeps them from it.
/// Where nothing is attached, nothing happens.
///
/// # Errors
/// The kernel refuses to unpin something, and says why.
pub fn remove(pins: &Pins) -> Result<(), Error> {
    let _turn = pins.lock(LOCK_TIMEOUT)?;
    pins.clear_all()
}
