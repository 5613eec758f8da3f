//! Google's metadata server, as google-auth and `cloud.google.com/go/compute/metadata` ask it.

use seawall_fetch::Answer;
use seawall_probe::files::{Reading, Unread};
use serde::Deserialize;

use super::ask::{Asker, Pace};
use super::lent::{Life, Outcome, Principal, Server, Wanted};
use super::names::is_service_account;
use super::windows::GOOGLE;
use crate::check::Site;
use crate::web::Place;

const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");
const ACCOUNT: &str = "/computeMetadata/v1/instance/service-accounts/default/";

/// The variables of Google's libraries: Go's, Python's and Java's, and Python's for an address.
const NAMES: [&str; 3] = ["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"];

pub(super) fn examine(site: &Site, pace: &Pace) -> Outcome {
    let named = NAMES.iter().find_map(|name| Some((*name, (site.environment)(name)?)));
    let wanted = match Wanted::new("Google's metadata server", named, Place::of_host, "169.254.169.254:80") {
        Ok(wanted) => wanted,
        Err(name) => return Outcome::Unaskable(name),
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
    let (mut tries, mut life) = (Vec::new(), Err(Unread::Absent("it was not asked for credentials")));
    if let Principal::Named(_) = principal {
        let (all, good) = asker.tries(10, &[ACCOUNT, "token"].concat(), &[FLAVOR]);
        (tries, life) = (all, left(good.as_ref()));
    }
    // Google's server for workloads has no disks to tell of.
    let own = asker.get("/computeMetadata/v1/instance/disks/", &[FLAVOR]);
    let is_machines_own = own.is_ok_and(|answer| answer.status() == 200);
    let server = Server {
        wanted: wanted.clone(),
        tries,
        times: asker.times(),
        principal,
        life,
        windows: GOOGLE,
        tokens: None,
        is_machines_own,
    };
    Outcome::Serving(Box::new(server))
}

fn principal(answer: &Answer) -> Principal {
    match answer.status() {
        200 => Principal::named(&answer.text(), is_service_account),
        404 => Principal::Nobody,
        status @ 500.. => Principal::Failing(status),
        status => {
            Principal::Unsaid(format!("it was answered {status} when it was asked whose account it lends"))
        }
    }
}

/// Of a token, nothing but its time.
#[derive(Deserialize)]
struct Token {
    expires_in: i64,
}

fn left(token: Option<&Answer>) -> Reading<Life> {
    let token = token.ok_or(Unread::Absent("it gave no token"))?;
    let token: Token = serde_json::from_slice(token.body())
        .map_err(|_| Unread::Absent("its answer is no token with a whole number of seconds (expires_in)"))?;
    Ok(Life { left: token.expires_in, whole: None })
}
