//! What carries offers out: a session of the load engine, or a simulated target.

use std::time::Duration;

use crate::offer::Offer;
use crate::search::{Search, Step};
use crate::seen::Seen;

/// Carries out what a search asks for, one thing after the other.
pub trait Target {
    /// Offers this load and says what was seen of it. Whenever a block of it is complete, [`Offer::enough`] is asked whether to
    /// stop sending; then what is outstanding is waited for as long as [`Offer::drain`] says, and closed.
    fn carry_out(&mut self, offer: &Offer) -> Seen;

    /// Sends nothing for that long; `false` if somebody wants the search to end.
    fn rest(&mut self, time: Duration) -> bool;
}

/// Searches to the end.
pub fn search(search: &mut Search, target: &mut impl Target) {
    loop {
        match search.next_step() {
            Step::Offer(offer) => {
                let seen = target.carry_out(&offer);
                search.saw(&offer, seen);
            }
            Step::Rest(time) => {
                let goes_on = target.rest(time);
                search.rested(time, goes_on);
            }
            Step::Over => return,
        }
    }
}
