//! The lines that the broker logs.

use std::time::Duration;

use seawall_broker::ExchangeFault;
use seawall_broker::google::{BROKER_SETTINGS, CredentialRequestRef};

use crate::captured_log::Lines;
use crate::world::{self, Mood, SECRET, TOKEN, World, run};

#[test]
fn what_is_logged_is_bounded_and_holds_no_credential() {
    let ((), lines) = Lines::of(|| {
        run(|| async {
            let world = World::new(BROKER_SETTINGS);
            let pod = world.pod("cart-0", "cart");
            world.answer(&pod, TOKEN).await.unwrap();
            world.cloud.turns(Mood::Fails(ExchangeFault::AccessDenied));
            let mallory = world.pod("mallory", "mallory");
            for n in 0..6000 {
                let audience = world::address(n);
                world.ask(
                    &mallory,
                    CredentialRequestRef::IdToken { audience: &audience, include_email: false },
                );
                world.pass(Duration::from_millis(10)).await;
            }
        });
    });
    assert!(lines.iter().any(|line| line.contains("credential issued") && line.contains("shop/cart")));
    assert!(lines.iter().any(|line| line.contains("cannot fetch a credential") && line.contains("TEAPOT")));
    assert!(
        lines.iter().all(|line| line.contains(r#"cloud="google""#)),
        "each says whose credentials it is about"
    );
    assert!(lines.len() <= 150 + 60 * 5 + 1, "{} lines in a minute", lines.len());
    assert!(!lines.iter().any(|line| line.contains(SECRET)));
    let has_gap = |line: &String| line.contains("suppressed_lines=") && !line.contains("suppressed_lines=0");
    assert!(lines.iter().any(has_gap), "a gap that no line reports");
}
