//! Google's token service and IAM Credentials, as fast as can be and with a fault for each account that the storm is about.
//!
//! `seawall emulate google` verifies and signs, which on a machine that the agent shares costs more than the agent does; and its
//! faults are of an endpoint, not of an account. This one believes everything. Only identity tokens have faults, so that one
//! pod can ask for its warm access token and be troubled by what it invents.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::arguments::Arguments;
use crate::serving::{self, Bytes, Request, answer};

/// A slow cloud, of which the agent's patience is not yet at its end.
const SLOW: Duration = Duration::from_millis(1500);

/// A hanging one: longer than anybody waits.
const HANG: Duration = Duration::from_secs(60);

const LIFE: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy)]
enum Fault {
    None,
    Slow,
    Hang,
    Throttle,
    Deny,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let faults = arguments
        .text("faults")
        .unwrap_or("ok")
        .split(',')
        .map(Fault::named)
        .collect::<Result<Vec<_>, _>>()?;
    serving::run(arguments.address("listen")?, move |request| {
        let fault = fault_of(&request, &faults);
        reply(request, fault)
    })
}

async fn reply(request: Request, fault: Fault) -> Bytes {
    match fault {
        Fault::Slow => tokio::time::sleep(SLOW).await,
        Fault::Hang => tokio::time::sleep(HANG).await,
        Fault::Throttle => return refusal("429 Too Many Requests", 429, "RESOURCE_EXHAUSTED"),
        Fault::Deny => return refusal("403 Forbidden", 403, "PERMISSION_DENIED"),
        Fault::None => {}
    }
    let expires = SystemTime::now() + LIFE;
    let body = match request.path.rsplit(':').next() {
        Some("generateAccessToken") => {
            let time = jiff::Timestamp::try_from(expires)
                .map_or_else(|_| String::new(), |time| format!("{time:.0}"));
            format!(r#"{{"accessToken":"ya29.{}","expireTime":"{time}"}}"#, "x".repeat(380))
        }
        Some("generateIdToken") => format!(r#"{{"token":"{}"}}"#, identity_token(expires)),
        _ => {
            format!(r#"{{"access_token":"federated","token_type":"Bearer","expires_in":{}}}"#, LIFE.as_secs())
        }
    };
    answer("200 OK", "application/json", &body)
}

/// As long as a real one; nobody here looks at its signature.
fn identity_token(expires: SystemTime) -> String {
    let seconds = expires.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{seconds},"pad":"{}"}}"#, "x".repeat(300)));
    format!("e30.{claims}.{}", "x".repeat(342))
}

fn refusal(status: &str, code: u16, word: &str) -> Bytes {
    answer(
        status,
        "application/json",
        &format!(r#"{{"error":{{"code":{code},"message":"storm","status":"{word}"}}}}"#),
    )
}

/// `…/serviceAccounts/hostile-N@…:generateIdToken` has the fault of its number.
fn fault_of(request: &Request, faults: &[Fault]) -> Fault {
    if !request.path.ends_with(":generateIdToken") {
        return Fault::None;
    }
    let number = request
        .path
        .split_once("/hostile-")
        .and_then(|(_, rest)| rest.split('@').next()?.parse::<usize>().ok());
    number.map_or(Fault::None, |number| faults[number % faults.len()])
}

impl Fault {
    fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "ok" => Self::None,
            "slow" => Self::Slow,
            "hang" => Self::Hang,
            "throttle" => Self::Throttle,
            "deny" => Self::Deny,
            other => return Err(format!("there is no fault {other:?}")),
        })
    }
}
