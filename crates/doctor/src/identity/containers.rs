//! The endpoint of containers' credentials (ECS, EKS Pod Identity), which the environment alone names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use seawall_fetch::Answer;
use seawall_probe::files::Unread;
use serde::Deserialize;

use super::ask::{Asker, Pace};
use super::aws::{lacks, lives};
use super::lent::{Misread, Outcome, Principal, Server, Wanted, lifeless};
use super::names::{is_account, is_role_arn};
use super::windows::{CONTAINERS, CONTAINERS_PATIENCE};
use crate::check::Site;
use crate::web::Place;

const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// ECS' agent.
const ECS: &str = "169.254.170.2:80";

pub(super) fn examine(site: &Site, pace: &Pace) -> Outcome {
    let wanted = match wanted(site) {
        None => return Outcome::Unasked,
        Some(Ok(wanted)) => wanted,
        Some(Err(outcome)) => return outcome,
    };
    if !is_taken(&wanted.place) {
        return Outcome::Refused(wanted);
    }
    let token = match token(site) {
        Ok(token) => token,
        Err(why) => return Outcome::Tokenless(wanted, why),
    };
    // ECS gives its tasks paths that nobody can guess, in place of tokens.
    if wanted.named_by == Some(RELATIVE) {
        pace.secrets().keep(wanted.place.path.rsplit('/').next().unwrap_or_default());
    }
    let asker = Asker::new(site, pace, &wanted);
    let headers: Vec<_> = token.iter().map(|token| ("Authorization", token.as_str())).collect();
    let first = match asker.lent("", &headers) {
        Ok(first) => first,
        Err(why) => return Outcome::Absent(wanted, why),
    };
    let principal = principal(&first);
    let (tries, good) = asker.tries(10, "", &headers, lacks, Some(first));
    let life = good.map_or_else(|| Err(lifeless(&tries)), |good| lives(&good, (site.wall)()));
    let server = Server {
        wanted: wanted.clone(),
        tries,
        times: asker.times(),
        principal,
        life,
        windows: CONTAINERS,
        patience: CONTAINERS_PATIENCE,
        tokens: None,
        is_machines_own: Some(false),
    };
    Outcome::Serving(Box::new(server))
}

/// The relative one counts first, as in the SDKs.
fn wanted(site: &Site) -> Option<Result<Wanted, Outcome>> {
    let whose = "the server of containers' credentials";
    if let Some(path) = (site.environment)(RELATIVE) {
        let place = Place { authority: ECS.to_owned(), path };
        return Some(Ok(Wanted { whose, place, named_by: Some(RELATIVE) }));
    }
    let url = (site.environment)(FULL)?;
    Some(Wanted::new(whose, Some((FULL, url)), Misread::url, ECS))
}

/// Beside loopback the addresses of ECS' agent and of EKS Pod Identity's, which SDKs take over plain HTTP (boto/botocore, `utils.py`,
/// `ContainerMetadataFetcher`; aws/aws-sdk-go-v2, `config/resolve_credentials.go`). Of names all take `localhost`, and botocore no other; Go's and Java's look a name up, and take it
/// where each of its addresses is one of these.
const TAKEN: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// Whether all SDKs ask there over plain HTTP.
fn is_taken(place: &Place) -> bool {
    place.address().map_or_else(
        || place.authority.rsplit_once(':').is_some_and(|(host, _)| host.eq_ignore_ascii_case("localhost")),
        |address| address.is_loopback() || TAKEN.contains(&address),
    )
}

/// What is sent as `Authorization`. SDKs cut blanks around it; a line end within it they refuse, wherever it comes from (boto/botocore,
/// `credentials.py`, `ContainerProvider`).
fn token(site: &Site) -> Result<Option<String>, String> {
    let (token, of) = match (site.environment)(TOKEN_FILE) {
        Some(file) => {
            // What begins otherwise may be the token itself.
            let is_shown = file.starts_with('/') && file.len() <= 256;
            let shown = if is_shown { file.as_str() } else { "what it names, which is not shown," };
            let text = site.files.read(&file);
            let text = text.map_err(|error| format!("{TOKEN_FILE}: {}", Unread::new(shown, &error)))?;
            (Some(text), format!("{shown} ({TOKEN_FILE})"))
        }
        None => ((site.environment)(TOKEN), TOKEN.to_owned()),
    };
    match token {
        Some(token) if token.contains(['\r', '\n']) => {
            Err(format!("the token in {of} has a line end, which SDKs refuse"))
        }
        token => Ok(token.map(|token| token.trim_matches(' ').to_owned())),
    }
}

/// Who is told beside the keys.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Whose {
    role_arn: Option<String>,
    account_id: Option<String>,
}

fn principal(answer: &Answer) -> Principal {
    match answer.status() {
        200 => {}
        status @ 500.. => return Principal::Failing(status),
        status => {
            return Principal::Unsaid(format!("it answered {status} when it was asked for credentials"));
        }
    }
    let whose = serde_json::from_slice::<Whose>(answer.body()).ok();
    let named = whose.and_then(|whose| {
        let account = || Some(Principal::named("a role of account ", &whose.account_id?, is_account));
        let role = whose.role_arn.map(|role| Principal::named("", &role, is_role_arn));
        role.or_else(account)
    });
    named.unwrap_or_else(|| Principal::Unsaid("its answer does not say whose they are".to_owned()))
}
