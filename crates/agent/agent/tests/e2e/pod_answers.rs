//! Hears from pods what they were given, and knows whose it is.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::node::NODE_ADDRESS;
use crate::pods::{Class, PYTHON, program, running};
use crate::support::cloud::{Cloud, email, subject};

/// What pods have told so far, by pod.
pub(crate) struct Collector {
    address: SocketAddr,
    pods: Arc<Mutex<BTreeMap<String, Tally>>>,
}

/// What one pod was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) own: usize,
    /// Answers that were not of this pod's: the worst there is.
    pub(crate) anothers: Vec<String>,
    /// By status, or by what its kernel said.
    pub(crate) refused: BTreeMap<String, usize>,
    /// Whether its very first request was answered.
    pub(crate) is_first_own: bool,
}

impl Collector {
    /// Listens on the node, until the process ends.
    pub(crate) fn start(cloud: &Arc<Cloud>) -> Self {
        let listener = TcpListener::bind((NODE_ADDRESS, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let pods = Arc::<Mutex<BTreeMap<String, Tally>>>::default();
        let (noted, cloud) = (Arc::clone(&pods), Arc::clone(cloud));
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (noted, cloud) = (Arc::clone(&noted), Arc::clone(&cloud));
                std::thread::spawn(move || hear(connection, &noted, &cloud));
            }
        });
        Self { address, pods }
    }

    /// A pod that asks from its first moment on.
    pub(crate) fn pod(&self, name: &str, account: &str) -> Value {
        let (host, port) = (self.address.ip().to_string(), self.address.port().to_string());
        // Without what Python does for people: many start at once.
        let words = [PYTHON, "-S", "-E", &program("src/asker.py"), &host, &port, name, account];
        let mut pod = running(name, account, Class::BestEffort, &words);
        pod["spec"]["containers"][0]["env"] = json!([{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]);
        pod
    }

    /// What a pod has told so far.
    pub(crate) fn of(&self, pod: &str) -> Tally {
        self.pods.lock().unwrap().get(pod).cloned().unwrap_or_default()
    }

    /// Everybody's.
    pub(crate) fn all(&self) -> BTreeMap<String, Tally> {
        self.pods.lock().unwrap().clone()
    }
}

/// Until the pod ends.
fn hear(connection: TcpStream, noted: &Mutex<BTreeMap<String, Tally>>, cloud: &Cloud) {
    let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
    let Some(introduction) = lines.next() else { return };
    let (pod, account) = introduction.split_once(' ').unwrap();
    for (number, line) in lines.enumerate() {
        let (asked, said) = line.split_once(' ').unwrap();
        let mut noted = noted.lock().unwrap();
        let tally = noted.entry(pod.to_owned()).or_default();
        tally.note(said, said.strip_prefix("200 ").map(|body| is_own(asked, body, account, cloud)));
        tally.is_first_own |= number == 0 && tally.own == 1;
    }
}

fn is_own(asked: &str, body: &str, account: &str, cloud: &Cloud) -> bool {
    if asked == "email" {
        return body == email(account);
    }
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let token = body["access_token"].as_str().and_then(|token| cloud.read_access_token(token));
    token.is_some_and(|token| token.sub == subject(account) && token.account == Some(email(account)))
}

impl Tally {
    fn note(&mut self, said: &str, is_own: Option<bool>) {
        match is_own {
            Some(true) => self.own += 1,
            Some(false) => self.anothers.push(said.to_owned()),
            None => {
                let word = said.split(' ').next().unwrap_or_default();
                *self.refused.entry(word.to_owned()).or_default() += 1;
            }
        }
    }
}
