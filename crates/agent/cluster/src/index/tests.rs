//! Compares the index with a very simple model, under random events.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use seawall_core::annotations::LengthCheckedAnnotation;

use super::*;
use crate::object::{KubeTimestamp, ObjectMeta, PartialObject, PodIpEntry, PodSpec, PodStatus};

/// A pod as an event describes it. The value ranges are small, so that addresses are often reused and claimed twice.
#[derive(Clone, Debug)]
struct ModelPod {
    uid: u8,
    account: Option<u8>,
    addresses: Vec<u8>,
    host_network: bool,
    phase: &'static str,
    /// The deletion time, in seconds of the test's clock.
    deletion: Option<u64>,
    sandbox: SandboxCondition,
    /// The time at which the kubelet first saw the pod.
    started: Option<u64>,
}

/// The model's time of the machine's start.
const BOOT: u64 = 100;

#[derive(Clone, Debug)]
enum Event {
    Applied(ModelPod),
    Deleted(u8),
    Listed(Vec<ModelPod>),
    Passes(u64),
}

fn told() -> impl Strategy<Value = ModelPod> {
    (
        0..6_u8,
        prop::option::weighted(0.9, 0..3_u8),
        prop::collection::vec(0..6_u8, 0..3),
        prop::bool::weighted(0.2),
        prop::sample::select(vec![
            "",
            "Pending",
            "Running",
            "Running",
            "Running",
            "Succeeded",
            "Failed",
            "Unknown",
        ]),
        prop::option::weighted(0.2, 0..600_u64),
        prop::sample::select(vec![
            SandboxCondition::Unknown,
            SandboxCondition::Unknown,
            SandboxCondition::Absent,
            SandboxCondition::Ready(None),
            SandboxCondition::Ready(Some(at(BOOT + 1))),
        ]),
        prop::option::weighted(0.3, 0..2 * BOOT),
    )
        .prop_map(|(uid, account, addresses, host_network, phase, deletion, sandbox, started)| {
            ModelPod { uid, account, addresses, host_network, phase, deletion, sandbox, started }
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => told().prop_map(Event::Applied),
        2 => (0..6_u8).prop_map(Event::Deleted),
        1 => prop::collection::vec(told(), 0..5).prop_map(|all| {
            // A list contains each pod once.
            let distinct: BTreeMap<u8, ModelPod> = all.into_iter().map(|told| (told.uid, told)).collect();
            Event::Listed(distinct.into_values().collect())
        }),
        1 => (1..120_u64).prop_map(Event::Passes),
    ]
}

/// Returns the text of an address: 0 to 3 are IPv4 addresses, 4 is address 0 written as IPv6, and 5 is an IPv6 address.
fn text(address: u8) -> String {
    match address {
        0..4 => format!("10.244.0.{address}"),
        4 => "::ffff:10.244.0.0".into(),
        _ => format!("fd00::{address}"),
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn object(told: &ModelPod) -> PodObject {
    PodObject {
        metadata: ObjectMeta {
            name: format!("pod-{}", told.uid),
            namespace: "reef".into(),
            uid: format!("uid-{}", told.uid),
            deletion_timestamp: told.deletion.map(|seconds| KubeTimestamp(at(seconds))),
            ..ObjectMeta::default()
        },
        spec: PodSpec {
            service_account_name: told.account.map_or(String::new(), |account| format!("account-{account}")),
            host_network: told.host_network,
            ..PodSpec::default()
        },
        status: PodStatus {
            phase: told.phase.into(),
            pod_ip: told.addresses.first().map_or(String::new(), |first| text(*first)),
            pod_ips: told.addresses.iter().map(|address| PodIpEntry { ip: text(*address) }).collect(),
            sandbox: told.sandbox,
            start_time: told.started.map(|seconds| KubeTimestamp(at(seconds))),
            ..PodStatus::default()
        },
    }
}

/// The expected result, computed in the simplest manner.
#[derive(Debug, Default)]
struct Model {
    pods: BTreeMap<u8, ModelPod>,
    /// The time at which each pod without an address began to lack it.
    starting: BTreeMap<u8, u64>,
    now: u64,
}

impl ModelPod {
    fn is_over(&self) -> bool {
        matches!(self.phase, "Succeeded" | "Failed")
    }

    /// True if the reported addresses belong to a sandbox that exists.
    fn has_sandbox(&self) -> bool {
        let is_since_boot = self.sandbox == SandboxCondition::Ready(Some(at(BOOT + 1)));
        self.sandbox != SandboxCondition::Absent
            && (is_since_boot || self.started.is_none_or(|at| at >= BOOT))
    }

    fn is_starting(&self) -> bool {
        !self.host_network && (self.addresses.is_empty() || !self.has_sandbox()) && !self.is_over()
    }
}

impl Model {
    fn happens(&mut self, event: &Event) {
        match event {
            Event::Applied(told) => drop(self.pods.insert(told.uid, told.clone())),
            Event::Deleted(uid) => drop(self.pods.remove(uid)),
            Event::Listed(all) => self.pods = all.iter().map(|told| (told.uid, told.clone())).collect(),
            Event::Passes(seconds) => self.now += seconds,
        }
        let starting = self.pods.iter().filter(|(_, told)| told.is_starting());
        let since = |uid: &u8| self.starting.get(uid).copied().unwrap_or(self.now);
        self.starting = starting.map(|(uid, _)| (*uid, since(uid))).collect();
    }

    fn live(&self) -> impl Iterator<Item = &ModelPod> {
        self.pods.values().filter(|told| {
            let over = told.deletion.is_some_and(|end| self.now >= end + DELETION_LEEWAY.as_secs());
            !over && !told.is_over()
        })
    }

    fn pod_at(&self, address: IpAddr) -> Result<String, PodLookupError> {
        let has = |told: &&ModelPod| {
            let own = told.addresses.iter().map(|a| text(*a).parse::<IpAddr>().unwrap().to_canonical());
            !told.host_network
                && told.has_sandbox()
                && own.into_iter().any(|own| own == address.to_canonical())
        };
        let claimants: Vec<&ModelPod> = self.live().filter(has).collect();
        let may_take = |told: &ModelPod| {
            self.starting.get(&told.uid).is_some_and(|since| self.now < since + SETTING_UP.as_secs())
        };
        match claimants[..] {
            [one] if one.account.is_some() && one.deletion.is_some() && self.live().any(may_take) => {
                Err(PodLookupError::Ambiguous)
            }
            [one] if one.account.is_some() => Ok(format!("uid-{}", one.uid)),
            [] => Err(PodLookupError::Absent),
            [_] => Err(PodLookupError::NoServiceAccount),
            _ => Err(PodLookupError::Ambiguous),
        }
    }

    fn uids(&self) -> Vec<String> {
        let mut uids: Vec<String> =
            self.live().filter(|t| t.account.is_some()).map(|t| format!("uid-{}", t.uid)).collect();
        uids.sort();
        uids
    }
}

fn feed(index: &mut PodIndex, event: &Event) {
    match event {
        Event::Applied(told) => index.apply_pod(&object(told)),
        Event::Deleted(uid) => {
            let mut gone = object(&ModelPod {
                uid: *uid,
                account: None,
                addresses: vec![],
                host_network: false,
                phase: "",
                deletion: None,
                sandbox: SandboxCondition::Unknown,
                started: None,
            });
            gone.metadata.name = "whatever the last state was".into();
            index.remove_pod(&gone);
        }
        Event::Listed(all) => index.replace_pods(all.iter().map(object).collect()),
        Event::Passes(_) => {}
    }
}

fn uids(snapshot: &PodSnapshot) -> Vec<String> {
    let mut uids: Vec<String> = snapshot.pods().map(|record| record.pod.uid.0.to_string()).collect();
    uids.sort();
    uids
}

proptest! {
    #[test]
    fn the_snapshot_says_what_the_model_says(events in prop::collection::vec(event(), 1..60)) {
        let (mut index, mut model) = (PodIndex::default(), Model::default());
        index.set_boot_time(Some(at(BOOT)));
        for event in &events {
            feed(&mut index, event);
            model.happens(event);
            let snapshot = index.build_snapshot(at(model.now));
            prop_assert_eq!(uids(&snapshot), model.uids());
            for address in 0..6 {
                let address: IpAddr = text(address).parse().unwrap();
                let said = snapshot.pod_at(address).map(|record| record.pod.uid.0.to_string());
                prop_assert_eq!(said, model.pod_at(address), "{} after {:?}", address, event);
            }
        }
    }

    #[test]
    fn an_end_that_passes_is_foretold(events in prop::collection::vec(event(), 1..40)) {
        let (mut index, mut model) = (PodIndex::default(), Model::default());
        for event in &events {
            feed(&mut index, event);
            model.happens(event);
        }
        let before = uids(&index.build_snapshot(at(model.now)));
        // Before the predicted moment, the snapshot must not change by itself.
        let quiet = index.next_change_at(at(model.now)).map_or(at(100_000), |end| end - Duration::from_secs(1));
        prop_assert_eq!(uids(&index.build_snapshot(quiet.max(at(model.now)))), before);
    }

    #[test]
    fn nothing_new_is_told_as_nothing_new(events in prop::collection::vec(event(), 1..40)) {
        let mut index = PodIndex::default();
        for event in &events {
            feed(&mut index, event);
            let first = index.build_snapshot(at(0));
            if matches!(event, Event::Applied(_) | Event::Listed(_)) {
                feed(&mut index, event);
            }
            let second = index.build_snapshot(at(0));
            for record in first.pods() {
                let again = second.pod_by_uid(&record.pod.uid.0);
                prop_assert!(again.is_some_and(|again| Arc::ptr_eq(again, record)));
            }
            prop_assert_eq!(second.version(), first.version() + 1);
        }
    }
}

/// The events of one ServiceAccount at the API server, and the deliveries to the index.
#[derive(Clone, Debug)]
enum Step {
    /// The ServiceAccount is written with this annotation value, or (`None`) deleted.
    Written(Option<u8>),
    /// The watch delivers the next change.
    Delivered,
    /// The watch is lost, and restarts from the present.
    Repositioned,
    /// The API server responds to all fetches that are under way.
    Read,
    /// The oldest response arrives at the index.
    Arrived,
    /// The only pod of the ServiceAccount leaves.
    Left,
    /// That pod returns.
    Came,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::option::weighted(0.7, 0..4_u8).prop_map(Step::Written),
        3 => Just(Step::Delivered),
        1 => Just(Step::Repositioned),
        3 => Just(Step::Read),
        3 => Just(Step::Arrived),
        1 => Just(Step::Left),
        1 => Just(Step::Came),
    ]
}

/// The API server's state, and the messages under way to the index.
#[derive(Default)]
struct World {
    index: PodIndex,
    /// All states of the ServiceAccount so far.
    history: Vec<Option<u8>>,
    /// The number of these states that the watch has delivered.
    delivered: usize,
    asked: Vec<ObjectFetch>,
    answers: Vec<(ObjectFetch, RelatedAnnotations)>,
}

fn account_object(value: Option<u8>) -> PartialObject {
    let annotations =
        value.map(|value| ("cloud/account", LengthCheckedAnnotation::from(&*format!("a{value}"))));
    let metadata = ObjectMeta {
        namespace: "reef".into(),
        name: "account-0".into(),
        annotations: annotations.into_iter().collect(),
        ..ObjectMeta::default()
    };
    PartialObject { metadata }
}

fn account(value: Option<u8>) -> RelatedAnnotations {
    value.map_or_else(RelatedAnnotations::of_missing_object, |_| {
        RelatedAnnotations::of_object(account_object(value).metadata.annotations)
    })
}

impl World {
    fn pod() -> PodObject {
        let told = ModelPod {
            uid: 0,
            account: Some(0),
            addresses: vec![],
            host_network: false,
            phase: "",
            deletion: None,
            sandbox: SandboxCondition::Unknown,
            started: None,
        };
        object(&told)
    }

    fn truth(&self) -> RelatedAnnotations {
        account(self.history.last().copied().flatten())
    }

    fn happens(&mut self, step: &Step) {
        match step {
            Step::Written(value) => self.history.push(*value),
            Step::Delivered if self.delivered < self.history.len() => {
                let value = self.history[self.delivered];
                self.delivered += 1;
                let object =
                    RelatedObjectKind::ServiceAccount.object_from_metadata(&account_object(value).metadata);
                self.index.apply_object(&object, &account(value));
            }
            Step::Repositioned => {
                self.delivered = self.history.len();
                self.index.refetch_objects(RelatedObjectKind::ServiceAccount);
            }
            Step::Read => {
                let truth = self.truth();
                let answers = self.asked.drain(..).map(|fetch| (fetch, truth.clone()));
                self.answers.extend(answers);
            }
            Step::Arrived if !self.answers.is_empty() => {
                let (fetch, account) = self.answers.remove(0);
                self.index.apply_fetched(&fetch, &account);
            }
            Step::Left => self.index.remove_pod(&Self::pod()),
            Step::Came => self.index.apply_pod(&Self::pod()),
            Step::Delivered | Step::Arrived => {}
        }
        // The writer takes these steps after each update.
        drop(self.index.build_snapshot(at(0)));
        self.asked.extend(self.index.take_related_object_fetches());
    }

    /// Delivers all messages that are under way.
    fn settle(&mut self) {
        while self.delivered < self.history.len() {
            self.happens(&Step::Delivered);
        }
        while !(self.asked.is_empty() && self.answers.is_empty()) {
            self.happens(&Step::Read);
            self.happens(&Step::Arrived);
        }
    }
}

proptest! {
    /// Watch and fetches race in every order. After all messages arrive, the index must match the server.
    #[test]
    fn a_service_account_ends_up_as_it_is(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::default();
        world.happens(&Step::Came);
        world.happens(&Step::Repositioned);
        for step in &steps {
            world.happens(step);
        }
        world.happens(&Step::Came);
        world.settle();
        let truth = world.truth();
        let snapshot = world.index.build_snapshot(at(0));
        prop_assert_eq!(&snapshot.pod_by_uid("uid-0").unwrap().annotations.service_account, &truth);
    }
}

fn running(uid: u8, addresses: &[u8]) -> ModelPod {
    ModelPod {
        uid,
        account: Some(0),
        addresses: addresses.to_vec(),
        host_network: false,
        phase: "Running",
        deletion: None,
        sandbox: SandboxCondition::Unknown,
        started: None,
    }
}

#[test]
fn a_terminating_pod_keeps_its_identity_until_its_end_has_passed() {
    let mut index = PodIndex::default();
    index.apply_pod(&object(&ModelPod { deletion: Some(30), ..running(1, &[0]) }));
    let address: IpAddr = text(0).parse().unwrap();
    let end = 30 + DELETION_LEEWAY.as_secs();
    assert!(index.build_snapshot(at(end - 1)).pod_at(address).unwrap().is_terminating);
    assert_eq!(index.next_change_at(at(0)), Some(at(end)));
    let after = index.build_snapshot(at(end));
    assert!(after.pod_at(address).is_err() && after.pods().len() == 0);
    // A late event must not bring the pod back.
    index.apply_pod(&object(&ModelPod { deletion: Some(30), ..running(1, &[0]) }));
    assert!(index.build_snapshot(at(end)).pod_at(address).is_err());
}

#[test]
fn a_dying_pod_does_not_answer_for_a_pod_whose_address_is_not_reported_yet() {
    let mut index = PodIndex::default();
    let address: IpAddr = text(0).parse().unwrap();
    index.apply_pod(&object(&ModelPod { deletion: Some(30), ..running(1, &[0]) }));
    assert!(index.build_snapshot(at(0)).pod_at(address).is_ok());
    index.apply_pod(&object(&running(2, &[])));
    assert!(matches!(index.build_snapshot(at(0)).pod_at(address), Err(PodLookupError::Ambiguous)));
    // The pod got another address.
    index.apply_pod(&object(&running(2, &[1])));
    assert!(index.build_snapshot(at(0)).pod_at(address).is_ok());
}

#[test]
fn a_pod_that_is_stuck_takes_no_addresses_and_one_that_starts_anew_may() {
    let mut index = PodIndex::default();
    let address: IpAddr = text(0).parse().unwrap();
    let says = |index: &mut PodIndex, seconds: u64| index.build_snapshot(at(seconds)).pod_at(address).is_ok();
    let stuck = SETTING_UP.as_secs();
    index.apply_pod(&object(&ModelPod { deletion: Some(3600), ..running(1, &[0]) }));
    index.apply_pod(&object(&running(2, &[])));
    assert!(!says(&mut index, 0) && !says(&mut index, stuck - 1));
    assert_eq!(index.next_change_at(at(0)), Some(at(stuck)));
    // A repeated event does not make the pod newer.
    index.apply_pod(&object(&ModelPod { phase: "Pending", ..running(2, &[]) }));
    assert!(says(&mut index, stuck), "a stuck pod withholds the address only for `SETTING_UP`");
    // The pod got an address and lost it. It may get another one.
    index.apply_pod(&object(&running(2, &[1])));
    assert!(says(&mut index, stuck));
    index.apply_pod(&object(&running(2, &[])));
    assert!(!says(&mut index, stuck + 1));
}

#[test]
fn whose_an_address_was_is_still_told_while_new_decisions_are_withheld() {
    let mut index = PodIndex::default();
    let address: IpAddr = text(0).parse().unwrap();
    index.apply_pod(&object(&ModelPod { deletion: Some(30), ..running(1, &[0]) }));
    index.apply_pod(&object(&running(2, &[])));
    let snapshot = index.build_snapshot(at(0));
    assert!(snapshot.pod_at(address).is_err());
    assert_eq!(&*snapshot.claimant(address).unwrap().pod.uid.0, "uid-1");
    // Another pod has the address.
    index.apply_pod(&object(&running(2, &[0])));
    assert!(index.build_snapshot(at(0)).claimant(address).is_none());
}

#[test]
fn a_pod_that_is_deleted_before_its_address_is_told_may_still_have_one() {
    let mut index = PodIndex::default();
    let address: IpAddr = text(0).parse().unwrap();
    index.apply_pod(&object(&ModelPod { deletion: Some(30), ..running(1, &[0]) }));
    index.apply_pod(&object(&ModelPod { deletion: Some(30), ..running(2, &[]) }));
    assert_eq!(index.build_snapshot(at(0)).pod_at(address).unwrap_err(), PodLookupError::Ambiguous);
}

/// The container runtime restarts. Both pods get new sandboxes, and each gets the other's address.
#[test]
fn pods_that_are_rebuilt_and_swap_addresses_are_never_taken_for_each_other() {
    let mut index = PodIndex::default();
    let [x, y]: [IpAddr; 2] = [text(0).parse().unwrap(), text(1).parse().unwrap()];
    let at_both = |index: &mut PodIndex| {
        let snapshot = index.build_snapshot(at(0));
        [x, y].map(|address| snapshot.pod_at(address).ok().map(|record| record.pod.uid.0.to_string()))
    };
    let (one, two) = (Some("uid-1".to_owned()), Some("uid-2".to_owned()));
    let ready =
        |uid, address| ModelPod { sandbox: SandboxCondition::Ready(None), ..running(uid, &[address]) };
    let absent = |uid, address| ModelPod { sandbox: SandboxCondition::Absent, ..running(uid, &[address]) };
    index.apply_pod(&object(&ready(1, 0)));
    index.apply_pod(&object(&ready(2, 1)));
    assert_eq!(at_both(&mut index), [one.clone(), two.clone()]);
    // Kubelets continue to report the previous address.
    index.apply_pod(&object(&absent(1, 0)));
    assert_eq!(at_both(&mut index), [None, two.clone()]);
    index.apply_pod(&object(&absent(2, 1)));
    assert_eq!(at_both(&mut index), [None, None]);
    index.apply_pod(&object(&ready(2, 0)));
    assert_eq!(at_both(&mut index), [two.clone(), None]);
    index.apply_pod(&object(&ready(1, 1)));
    assert_eq!(at_both(&mut index), [two, one]);
}

/// The machine reboots, and the agent starts before the kubelet has reported anything.
#[test]
fn what_was_told_before_the_machines_start_names_nobody_until_it_is_told_again() {
    let mut index = PodIndex::default();
    let address: IpAddr = text(0).parse().unwrap();
    index.set_boot_time(Some(at(BOOT)));
    let before = ModelPod { started: Some(BOOT - 1), ..running(1, &[0]) };
    index.replace_pods(vec![object(&before)]);
    assert_eq!(index.build_snapshot(at(BOOT + 5)).pod_at(address).unwrap_err(), PodLookupError::Absent);
    // Long after the machine's start, the status counts again.
    index.set_boot_time(None);
    assert!(index.build_snapshot(at(BOOT + 5)).pod_at(address).is_ok());
    index.set_boot_time(Some(at(BOOT)));
    assert!(index.build_snapshot(at(BOOT + 5)).pod_at(address).is_err());
    // The pod gets its next sandbox. Older kubelets do not report sandboxes; for them the start of the next container counts.
    let made = ModelPod { sandbox: SandboxCondition::Ready(Some(at(BOOT + 1))), ..before.clone() };
    index.apply_pod(&object(&made));
    assert!(index.build_snapshot(at(BOOT + 5)).pod_at(address).is_ok());
    // No known kubelet writes a status without a time. The index accepts such a status.
    index.apply_pod(&object(&running(1, &[0])));
    assert!(index.build_snapshot(at(BOOT + 5)).pod_at(address).is_ok());
}

#[test]
fn before_the_first_list_nothing_is_complete() {
    let mut index = PodIndex::default();
    index.apply_pod(&object(&running(1, &[0])));
    assert!(!index.build_snapshot(at(0)).has_complete_pod_list());
    index.replace_pods(vec![]);
    let snapshot = index.build_snapshot(at(0));
    assert!(snapshot.has_complete_pod_list() && snapshot.pods().len() == 0);
}

#[test]
fn no_service_account_is_read_before_its_watch_has_a_position() {
    let mut index = PodIndex::default();
    index.apply_pod(&object(&running(1, &[0])));
    assert!(index.take_related_object_fetches().is_empty());
    index.refetch_objects(RelatedObjectKind::ServiceAccount);
    assert_eq!(index.take_related_object_fetches().len(), 1);
    assert!(index.take_related_object_fetches().is_empty(), "each fetch is returned once");
}

#[test]
fn service_accounts_that_nobody_uses_are_forgotten() {
    let mut index = PodIndex::default();
    index.refetch_objects(RelatedObjectKind::ServiceAccount);
    index.apply_pod(&object(&running(1, &[0])));
    drop(index.build_snapshot(at(0)));
    let fetch = index.take_related_object_fetches().remove(0);
    index.remove_pod(&object(&running(1, &[0])));
    drop(index.build_snapshot(at(0)));
    assert!(index.accounts.is_empty());
    assert!(fetch.ticket.upgrade().is_none(), "the reader of this fetch can stop");
}

#[test]
fn tokens_survive_a_change_of_the_record_and_not_a_change_of_the_pod() {
    let mut index = PodIndex::default();
    index.apply_pod(&object(&running(1, &[0])));
    let first = index.build_snapshot(at(0)).pod_by_uid("uid-1").unwrap().clone();
    index.apply_pod(&object(&running(1, &[1])));
    let second = index.build_snapshot(at(0)).pod_by_uid("uid-1").unwrap().clone();
    assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first.token_cache, &second.token_cache));
    index.remove_pod(&object(&running(1, &[1])));
    index.apply_pod(&object(&running(1, &[1])));
    let third = index.build_snapshot(at(0)).pod_by_uid("uid-1").unwrap().clone();
    assert!(!Arc::ptr_eq(&second.token_cache, &third.token_cache));
}

/// Returns an index with pods 1 and 2 in `reef` and pod 3 in `shop`, and the fetches of their namespaces by name.
fn in_two_namespaces() -> (PodIndex, BTreeMap<String, ObjectFetch>) {
    let mut index = PodIndex::tracking_namespaces();
    for (uid, namespace) in [(1, "reef"), (2, "reef"), (3, "shop")] {
        let mut pod = object(&running(uid, &[uid]));
        pod.metadata.namespace = namespace.into();
        index.apply_pod(&pod);
    }
    assert!(
        index.take_related_object_fetches().is_empty(),
        "a change before the watch begins would be missed"
    );
    index.refetch_objects(RelatedObjectKind::Namespace);
    let fetches = index
        .take_related_object_fetches()
        .into_iter()
        .map(|fetch| (fetch.object.to_string(), fetch))
        .collect();
    (index, fetches)
}

fn namespace(name: &str) -> RelatedObject {
    RelatedObject::Namespace(name.into())
}

fn says(value: &str) -> RelatedAnnotations {
    RelatedAnnotations::of_object(
        [("cloud/of-namespace", LengthCheckedAnnotation::from(value))].into_iter().collect(),
    )
}

#[test]
fn a_namespaces_annotation_reaches_all_of_its_pods() {
    let (mut index, fetches) = in_two_namespaces();
    assert!(fetches.keys().eq(["namespace reef", "namespace shop"]), "{fetches:?}");
    index.apply_fetched(&fetches["namespace reef"], &says("a"));
    let snapshot = index.build_snapshot(at(0));
    let told = |uid| snapshot.pod_by_uid(uid).unwrap().annotations.namespace.clone();
    assert_eq!(
        [told("uid-1"), told("uid-2"), told("uid-3")],
        [says("a"), says("a"), RelatedAnnotations::NotRead]
    );
    let (RelatedAnnotations::Known(one), RelatedAnnotations::Known(two)) = (told("uid-1"), told("uid-2"))
    else {
        unreachable!()
    };
    assert!(Arc::ptr_eq(&one, &two), "all pods of the namespace share the annotations");
    // A pod that comes later gets the known annotations at once.
    index.apply_pod(&object(&running(4, &[4])));
    assert_eq!(index.build_snapshot(at(0)).pod_by_uid("uid-4").unwrap().annotations.namespace, says("a"));
}

#[test]
fn a_change_of_a_namespace_is_told_to_its_pods_alone() {
    let (mut index, fetches) = in_two_namespaces();
    for fetch in fetches.values() {
        index.apply_fetched(fetch, &says("a"));
    }
    let before = index.build_snapshot(at(0));
    index.apply_object(&namespace("reef"), &says("b"));
    index.apply_object(&namespace("elsewhere"), &says("b"));
    let after = index.build_snapshot(at(0));
    let is_same = |uid| Arc::ptr_eq(before.pod_by_uid(uid).unwrap(), after.pod_by_uid(uid).unwrap());
    assert_eq!(["uid-1", "uid-2", "uid-3"].map(is_same), [false, false, true]);
    let changed = after.pod_by_uid("uid-1").unwrap();
    assert_eq!(
        (&changed.annotations.namespace, &changed.annotations.service_account),
        (&says("b"), &RelatedAnnotations::NotRead)
    );
}

#[test]
fn a_read_of_a_namespace_that_an_event_overtakes_is_ignored() {
    let (mut index, fetches) = in_two_namespaces();
    let overtaken = &fetches["namespace reef"];
    index.apply_object(&namespace("reef"), &says("new"));
    assert!(overtaken.ticket.upgrade().is_none());
    index.apply_fetched(overtaken, &says("old"));
    assert_eq!(index.build_snapshot(at(0)).pod_by_uid("uid-1").unwrap().annotations.namespace, says("new"));
    // A fetch from before the restart of the watch is ignored as well. The known value stays until the next response.
    index.refetch_objects(RelatedObjectKind::Namespace);
    index.apply_fetched(&fetches["namespace shop"], &says("old"));
    assert_eq!(
        index.build_snapshot(at(0)).pod_by_uid("uid-3").unwrap().annotations.namespace,
        RelatedAnnotations::NotRead
    );
    assert_eq!(index.take_related_object_fetches().len(), 2);
}

#[test]
fn nothing_is_unknown_of_namespaces_that_nobody_asks_about() {
    let mut index = PodIndex::default();
    index.apply_pod(&object(&running(1, &[0])));
    index.refetch_objects(RelatedObjectKind::Namespace);
    index.apply_object(&namespace("reef"), &says("a"));
    assert!(index.take_related_object_fetches().is_empty());
    let snapshot = index.build_snapshot(at(0));
    assert_eq!(
        snapshot.pod_by_uid("uid-1").unwrap().annotations.namespace,
        RelatedAnnotations::of_object(Annotations::default())
    );
}

#[test]
fn namespaces_that_nobody_uses_are_forgotten() {
    let (mut index, fetches) = in_two_namespaces();
    index.remove_pod(&object(&running(3, &[3])));
    drop(index.build_snapshot(at(0)));
    assert!(fetches["namespace shop"].ticket.upgrade().is_none(), "the reader of this fetch can stop");
    assert!(fetches["namespace reef"].ticket.upgrade().is_some());
}
