//! The steps of a search for a number of clients, within the same budget.

use std::time::Duration;

use seawall_search::closed::{Offer, Search, Step as Wanted, Target};
use seawall_search::offer::Purpose;

use super::Steps;
use crate::find::answer::Cut;
use crate::find::closed::{ended_by, told, trial};
use crate::find::progress::{Step, Watcher};

/// Shortest trial that is worth anything once clients are spread out as they stay.
const SHORTEST: Duration = Duration::from_secs(1);

impl<W: Watcher> Steps<'_, W> {
    /// Searches to the end, or to that of the budget; says what ended it before.
    pub(in crate::find) fn search_clients(
        &mut self,
        target: &mut (impl Target + ?Sized),
        search: &mut Search,
    ) -> Option<Cut> {
        loop {
            let left = self.left().unwrap_or(Duration::MAX);
            match search.next_step() {
                Wanted::Over => return ended_by(search),
                Wanted::Rest(time) if time > left => return Some(Cut::Budget),
                Wanted::Rest(time) => {
                    let goes_on = self.step(Step::Rest(time), || target.rest(time), |_| time);
                    search.rested(time, goes_on);
                }
                Wanted::Offer(offer) => match fitted(&offer, left) {
                    None => return Some(Cut::Budget),
                    Some(fitted) => self.offer_clients(target, search, fitted),
                },
            }
        }
    }

    fn offer_clients(&mut self, target: &mut (impl Target + ?Sized), search: &mut Search, offer: Offer) {
        self.watcher.begins(&Step::Clients(&offer), self.time());
        let seen = target.carry_out(&offer);
        self.spent += seen.took;
        search.saw(&offer, seen);
        let came = search.report().trials.last().map(trial);
        self.watcher.ended(&Step::Clients(&offer), came.as_ref(), self.time());
        self.watcher.knows(&|| told(self.plan, &search.report(), None, false));
    }
}

/// The offer as far as there is time for it; none where there is not.
fn fitted(offer: &Offer, left: Duration) -> Option<Offer> {
    let left = left.saturating_sub(offer.drain);
    let shortest = Duration::from_secs_f64(offer.standard.settle) + SHORTEST;
    let needed = match offer.purpose {
        // Nobody is overloaded for a trial that there is no time for.
        Purpose::Arm => offer.most + offer.drain + shortest,
        _ => shortest.min(offer.most),
    };
    (needed <= left).then(|| Offer { most: offer.most.min(left), ..*offer })
}
