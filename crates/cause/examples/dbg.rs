//! d
#![allow(clippy::print_stdout)]
use seawall_cause::case::Case;
use seawall_cause::odds::*;
use seawall_cause::simulated::plants::*;
use seawall_cause::simulated::scores::*;
fn show(p: Plant) {
    let k = p.known.clone();
    let t = p.truth.clone();
    println!("== {:?} K={:.2} limit {:.0} service {:.4}", t, k.limit * k.service, k.limit, k.service);
    let s = score(p);
    let c = Case { known: &k, tried: &s.report.tried };
    let r = read(&c);
    let o = Odds::new(&r, 1.0);
    for (c, p) in o.of.iter().take(4) {
        print!("{c} {p:.3} ");
    }
    println!("  named {:?}", s.named);
    if std::env::args().count() > 4 {
        for r in &r {
            println!(
                "   {} -> {} {} | {}",
                r.rule.by,
                r.outcome,
                r.seen,
                o.of.iter()
                    .take(3)
                    .map(|(c, _)| format!("{c} {:.3}", r.rule.chance(r.outcome, *c)))
                    .collect::<Vec<_>>()
                    .join(" ")
            );
        }
        for t in &s.report.tried {
            println!("  {:?} {:?}: {}", t.experiment.name, t.experiment.load, t.says);
        }
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: usize = a[1].parse().unwrap();
    let f: u64 = a[2].parse().unwrap();
    let k: u64 = a[3].parse().unwrap();
    for s in f..f + k {
        show(if n < 100 {
            Plant::draw(SINGLE[n], s)
        } else if n < 200 {
            Plant::draw_pair(PAIRS[n - 100], s)
        } else if n == 200 {
            Plant::sound(s)
        } else {
            Plant::puzzle(s)
        })
    }
}
