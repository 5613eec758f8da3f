//! Azure's instance metadata, or an endpoint of App Service or the like, as MSAL and azidentity ask them.

mod way;

use std::time::{SystemTime, UNIX_EPOCH};

use seawall_fetch::Answer;
use serde_json::Value;

use self::way::Way;
use super::ask::{Asker, Pace};
use super::lent::{Lacks, Life, Outcome, Principal, Server, is_plain, is_said, lifeless};
use super::names::is_client;
use super::windows::{AZURE, AZURE_PATIENCE};
use crate::check::Site;

pub(super) fn examine(site: &Site, pace: &Pace) -> Outcome {
    let Way { wanted, path, headers, says_life, is_machines } = match Way::of(site) {
        Ok(way) => way,
        Err(outcome) => return outcome,
    };
    let asker = Asker::new(site, pace, &wanted);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let first = match asker.lent(path, &headers) {
        Ok(first) => first,
        Err(why) => return Outcome::Absent(wanted, why),
    };
    let Some(said) = said(&first) else { return Outcome::stranger(wanted, [&first]) };
    let lacks = if says_life { lacks_life } else { lacks_end };
    let principal = principal(&first, &said, lacks);
    // It answers five requests a second ("Azure Instance Metadata Service: rate limiting").
    let (tries, good) = match first.status() {
        200 => asker.tries(4, path, &headers, lacks, Some(first)),
        _ => (Vec::new(), None),
    };
    let life = good.as_ref().and_then(self::said).and_then(|said| said.lives((site.wall)()));
    let is_machines_own = if is_machines {
        let own = asker.get("/metadata/instance?api-version=2021-02-01", &headers);
        own.ok().map(|answer| answer.status() == 200)
    } else {
        Some(false)
    };
    let server = Server {
        wanted: wanted.clone(),
        times: asker.times(),
        principal,
        life: life.ok_or_else(|| lifeless(&tries)),
        tries,
        windows: AZURE,
        patience: AZURE_PATIENCE,
        tokens: None,
        is_machines_own,
    };
    Outcome::Serving(Box::new(server))
}

/// What an answer says beside its token; none if it is not Azure's: each of its answers about tokens is JSON with a token or an error,
/// and the others' servers, which may refuse in JSON, call themselves theirs. Who gives a token is one that SDKs use, whatever it calls itself.
fn said(answer: &Answer) -> Option<Said> {
    let is_others = answer.header("server") == "EC2ws" || !answer.header("metadata-flavor").is_empty();
    let all: Value = serde_json::from_slice(answer.body()).ok()?;
    // App Service's errors have a number and a message.
    let is_error = all["error"].is_string() || (all["statusCode"].is_i64() && all["message"].is_string());
    let is_azure = all["access_token"].is_string() || (is_error && !is_others);
    if !is_azure {
        return None;
    }
    let text = |name: &str| all[name].as_str().map(str::to_owned);
    // Numbers are text in the real service's answers, and numbers in some others'.
    let number = |name: &str| all[name].as_i64().or_else(|| all[name].as_str()?.parse().ok());
    let whole = number("expires_on").zip(number("not_before")).map(|(end, begin)| end.saturating_sub(begin));
    Some(Said {
        client: text("client_id"),
        error: ["error_description", "error", "message"].into_iter().find_map(text),
        left: number("expires_in"),
        end: number("expires_on"),
        whole: whole.filter(|whole| *whole > 0),
    })
}

struct Said {
    client: Option<String>,
    error: Option<String>,
    left: Option<i64>,
    end: Option<i64>,
    whole: Option<i64>,
}

impl Said {
    fn lives(self, now: SystemTime) -> Option<Life> {
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let until = |end: i64| end.saturating_sub(i64::try_from(now).unwrap_or(i64::MAX));
        Some(Life { left: self.left.or_else(|| self.end.map(until))?, whole: self.whole })
    }
}

fn principal(answer: &Answer, said: &Said, lacks: Lacks) -> Principal {
    match (answer.status(), &said.client, &said.error) {
        (200, ..) if lacks(answer).is_some() => {
            Principal::Unsaid("it answered 200 without a token".to_owned())
        }
        (200, Some(client), _) => Principal::named("managed identity with client id ", client, is_client),
        (200, None, _) => Principal::Named("a managed identity that is not named", String::new()),
        (400, _, Some(error)) if error.contains("dentity not found") => Principal::Nobody,
        (status @ 500.., ..) => Principal::Failing(status),
        (status, _, Some(error)) if is_plain(error) => Principal::Refused(status, error.clone()),
        (status, ..) => Principal::Unsaid(format!("it answered {status}: no word")),
    }
}

/// What an answer lacks to be a token: of instance metadata MSAL takes none without either, and of endpoints none without its end
/// (AzureAD/microsoft-authentication-library-for-python, `msal/managed_identity.py`).
fn lacks_life(token: &Answer) -> Option<&'static str> {
    let is_whole = is_token(token) && said(token).is_some_and(|said| said.left.is_some());
    (!is_whole).then_some("without an access_token and its life (expires_in)")
}

fn lacks_end(token: &Answer) -> Option<&'static str> {
    let is_whole = is_token(token) && said(token).is_some_and(|said| said.end.is_some());
    (!is_whole).then_some("without an access_token and its end (expires_on)")
}

fn is_token(token: &Answer) -> bool {
    let all: Value = serde_json::from_slice(token.body()).unwrap_or_default();
    is_said(&all["access_token"])
}
