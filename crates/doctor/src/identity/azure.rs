//! Azure's instance metadata, as MSAL and azidentity ask it.

use seawall_fetch::Answer;
use serde_json::Value;

use super::ask::{Asker, Pace};
use super::lent::{Life, Misread, Outcome, Principal, Server, Wanted, is_plain, is_said, lifeless};
use super::names::is_client;
use super::windows::{AZURE, AZURE_PATIENCE};
use crate::check::Site;

const TOKEN: &str =
    "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";
const HEADER: (&str, &str) = ("Metadata", "true");

/// The variable of azidentity and MSAL.
const NAME: &str = "AZURE_POD_IDENTITY_AUTHORITY_HOST";

pub(super) fn examine(site: &Site, pace: &Pace) -> Outcome {
    let named = (site.environment)(NAME).map(|url| (NAME, url));
    let wanted = match Wanted::new("Azure's metadata service", named, Misread::url, "169.254.169.254:80") {
        Ok(wanted) => wanted,
        Err(outcome) => return outcome,
    };
    let asker = Asker::new(site, pace, &wanted);
    let first = match asker.lent(TOKEN, &[HEADER]) {
        Ok(first) => first,
        Err(why) => return Outcome::Absent(wanted, why),
    };
    let Some(said) = said(&first) else { return Outcome::stranger(wanted, [&first]) };
    let principal = principal(&first, &said);
    // It answers five requests a second ("Azure Instance Metadata Service: rate limiting").
    let (tries, good) =
        if first.status() == 200 { asker.tries(3, TOKEN, &[HEADER], lacks) } else { (Vec::new(), None) };
    let life = good.as_ref().and_then(self::said).and_then(lives).ok_or_else(|| lifeless(&tries));
    let own = asker.get("/metadata/instance?api-version=2021-02-01", &[HEADER]);
    let is_machines_own = own.is_ok_and(|answer| answer.status() == 200);
    let server = Server {
        wanted: wanted.clone(),
        tries,
        times: asker.times(),
        principal,
        life,
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
    let is_azure = all["access_token"].is_string() || (all["error"].is_string() && !is_others);
    if !is_azure {
        return None;
    }
    let text = |name: &str| all[name].as_str().map(str::to_owned);
    // Numbers are text in the real service's answers, and numbers in some others'.
    let number = |name: &str| all[name].as_i64().or_else(|| all[name].as_str()?.parse().ok());
    let whole = number("expires_on").zip(number("not_before")).map(|(end, begin)| end.saturating_sub(begin));
    Some(Said {
        client: text("client_id"),
        error: text("error_description").or_else(|| text("error")),
        left: number("expires_in"),
        whole: whole.filter(|whole| *whole > 0),
    })
}

struct Said {
    client: Option<String>,
    error: Option<String>,
    left: Option<i64>,
    whole: Option<i64>,
}

fn principal(answer: &Answer, said: &Said) -> Principal {
    match (answer.status(), &said.client, &said.error) {
        (200, ..) if lacks(answer).is_some() => {
            Principal::Unsaid("it answered 200 without a token".to_owned())
        }
        (200, Some(client), _) => match Principal::named(client, is_client) {
            Principal::Named(client) => Principal::Named(format!("managed identity with client id {client}")),
            other => other,
        },
        (200, None, _) => Principal::Named("a managed identity that is not named".to_owned()),
        (400, _, Some(error)) if error.contains("dentity not found") => Principal::Nobody,
        (status @ 500.., ..) => Principal::Failing(status),
        (status, _, error) => {
            let word = error.as_deref().filter(|error| is_plain(error)).unwrap_or("no word");
            Principal::Unsaid(format!("it answered {status}: {word}"))
        }
    }
}

/// What an answer lacks to be a token: MSAL takes none without either (AzureAD/microsoft-authentication-library-for-python,
/// `msal/managed_identity.py`).
fn lacks(token: &Answer) -> Option<&'static str> {
    let all: Value = serde_json::from_slice(token.body()).unwrap_or_default();
    let is_whole = is_said(&all["access_token"]) && said(token).and_then(lives).is_some();
    (!is_whole).then_some("without an access_token and its life (expires_in)")
}

fn lives(said: Said) -> Option<Life> {
    Some(Life { left: said.left?, whole: said.whole })
}
