//! What a Rust program gets from AWS's metadata service through aws-config: see ../README.md.

use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};

use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_credential_types::provider::ProvideCredentials;
use aws_smithy_http_client::Builder;
use serde_json::{Value, json};

type Answer = Result<String, String>;

/// As a program that does not catch it shows it: with its causes.
fn told(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody reads");
}

/// The metadata service speaks no TLS, so the client is the library's own without it: what would take minutes to build is never used.
fn loader() -> ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest()).http_client(Builder::new().build_http())
}

async fn credentials(config: &SdkConfig) -> Answer {
    let provider = config.credentials_provider().ok_or("no provider of credentials")?;
    let found = provider.provide_credentials().await.map_err(|error| told(&error))?;
    Ok(format!("{} {}", found.access_key_id(), found.session_token().unwrap_or_default()))
}

async fn region() -> Answer {
    let config = loader().load().await;
    Ok(config.region().ok_or("no region")?.to_string())
}

async fn ask(config: &SdkConfig, step: &str, question: &str) -> bool {
    let begun = Instant::now();
    let answer = match question {
        "credentials" => credentials(config).await,
        "region" => region().await,
        _ => panic!("unknown step: {step}"),
    };
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (kind, text) = match &answer {
        Ok(value) => ("value", value),
        Err(error) => ("error", error),
    };
    say(&json!({ "step": step, "milliseconds": milliseconds, kind: text }));
    answer.is_ok()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let steps = std::env::args().skip(2);
    say(&json!({ "step": "begin" }));
    // One for the life of the program, as a server has it. A region that it is not told it looks for now, for seconds.
    let config = loader().region(Region::from_static("eu-west-1")).load().await;
    for step in steps {
        if step == "wait" {
            say(&json!({ "step": step }));
            std::io::stdin().read_line(&mut String::new()).expect("a line");
            continue;
        }
        let (question, mut tries) = step.strip_prefix("until:").map_or((&*step, 1), |asked| (asked, 20));
        while !ask(&config, &step, question).await && tries > 1 {
            tries -= 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
