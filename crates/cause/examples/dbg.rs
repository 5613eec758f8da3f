//! d
#![allow(clippy::print_stdout)]
use seawall_cause::battery;
use seawall_cause::case::Case;
use seawall_cause::class::Class;
use seawall_cause::simulated::plants::Plant;
use seawall_cause::subject::Subject;
fn main() {
    let mut p = Plant::draw(Class::Pauses, 1);
    println!("{:?}", p.subject.stalls);
    let k = p.known.clone();
    let c = Case { known: &k, tried: &[] };
    for e in [battery::base(&c), battery::near(&c)] {
        let w = p.subject.watch(&e);
        println!("{} {:?} {:?}", p.subject.now, p.subject.stalls, w.took);
        let mut prev = 0.0;
        for h in &w.hits {
            if h.response() > 0.02 {
                println!("{:.3} {:.3} {:.4} {:?}", h.due, h.end, h.response(), h.how);
            }
            prev = h.due;
        }
        let _ = prev;
    }
}
