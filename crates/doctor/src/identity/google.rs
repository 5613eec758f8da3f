//! Google's metadata server, as google-auth and `cloud.google.com/go/compute/metadata` ask it.

use seawall_fetch::Answer;
use serde_json::Value;

use super::ask::{Asker, Pace};
use super::lent::{Life, Misread, Outcome, Principal, Server, Wanted, is_said, lifeless};
use super::names::is_service_account;
use super::windows::{GOOGLE, GOOGLE_PATIENCE};
use crate::check::Site;

const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");
const ACCOUNT: &str = "/computeMetadata/v1/instance/service-accounts/default/";

/// The variables of Google's libraries: Go's, Python's and Java's, and Python's for an address.
const NAMES: [&str; 3] = ["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"];

pub(super) fn examine(site: &Site, pace: &Pace) -> Outcome {
    let named = NAMES.iter().find_map(|name| Some((*name, (site.environment)(name)?)));
    let wanted = match Wanted::new("Google's metadata server", named, Misread::host, "169.254.169.254:80") {
        Ok(wanted) => wanted,
        Err(outcome) => return outcome,
    };
    let asker = Asker::new(site, pace, &wanted);
    let email = match asker.get(&[ACCOUNT, "email"].concat(), &[FLAVOR]) {
        Ok(email) => email,
        Err(why) => return Outcome::Absent(wanted, why),
    };
    if !email.header(FLAVOR.0).eq_ignore_ascii_case(FLAVOR.1) {
        return Outcome::stranger(wanted, [&email]);
    }
    let principal = principal(&email);
    let (tries, good) = match principal {
        Principal::Named(..) => asker.tries(10, &[ACCOUNT, "token"].concat(), &[FLAVOR], lacks, None),
        _ => (Vec::new(), None),
    };
    let life = good.as_ref().and_then(left).ok_or_else(|| lifeless(&tries));
    // Google's server for workloads has no disks to tell of.
    let own = asker.get("/computeMetadata/v1/instance/disks/", &[FLAVOR]);
    let is_machines_own = own.ok().map(|answer| answer.status() == 200);
    let server = Server {
        wanted: wanted.clone(),
        tries,
        times: asker.times(),
        principal,
        life,
        windows: GOOGLE,
        patience: GOOGLE_PATIENCE,
        tokens: None,
        is_machines_own,
    };
    Outcome::Serving(Box::new(server))
}

fn principal(answer: &Answer) -> Principal {
    match answer.status() {
        200 => Principal::named("", &answer.text(), is_service_account),
        404 => Principal::Nobody,
        status @ 500.. => Principal::Failing(status),
        status => {
            Principal::Unsaid(format!("it was answered {status} when it was asked whose account it lends"))
        }
    }
}

/// What an answer lacks to be a token: Go's library fails without either (golang/oauth2, `google/google.go`), or where the time is no whole number.
fn lacks(token: &Answer) -> Option<&'static str> {
    let token: Value = serde_json::from_slice(token.body()).unwrap_or_default();
    let is_whole = is_said(&token["access_token"]) && token["expires_in"].is_i64();
    (!is_whole).then_some("without an access_token and a whole number of seconds (expires_in)")
}

/// Of a token, nothing but its time.
fn left(token: &Answer) -> Option<Life> {
    let token: Value = serde_json::from_slice(token.body()).ok()?;
    Some(Life { left: token["expires_in"].as_i64()?, whole: None })
}
