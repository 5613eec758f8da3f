//! What the broker logs. A program of its own: `tracing` decides once per process whether a line is of interest, so a test
//! beside it that logs without a listener could silence this one.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod lines;
mod world;

use std::time::Duration;

use lines::Lines;
use seawall_broker::Fault;
use seawall_broker::google::{SETTINGS, WantRef};
use world::{Mood, SECRET, TOKEN, World, run};

#[test]
fn what_is_logged_is_bounded_and_holds_no_credential() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        run(|| async {
            let world = World::new(SETTINGS);
            let pod = world.pod("cart-0", "cart");
            world.answer(&pod, TOKEN).await.unwrap();
            world.cloud.turns(Mood::Fails(Fault::Denied));
            let mallory = world.pod("mallory", "mallory");
            for n in 0..6000 {
                let audience = world::address(n);
                world.ask(&mallory, WantRef::IdToken { audience: &audience, include_email: false });
                world.pass(Duration::from_millis(10)).await;
            }
        });
    });
    let lines = lines.all();
    assert!(lines.iter().any(|line| line.contains("credential issued") && line.contains("shop/cart")));
    assert!(lines.iter().any(|line| line.contains("no credential") && line.contains("TEAPOT")));
    assert!(
        lines.iter().all(|line| line.contains(r#"cloud="google""#)),
        "each says whose credentials it is about"
    );
    assert!(lines.len() <= 150 + 60 * 5 + 1, "{} lines in a minute", lines.len());
    assert!(!lines.iter().any(|line| line.contains(SECRET)));
    let left_out = lines.iter().any(|line| line.contains("left_out=") && !line.contains("left_out=0"));
    assert!(left_out, "a gap that is not told");
}
