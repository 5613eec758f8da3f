//! Compares the cost of a captured connection with that of a direct connection. `benches/redirect` creates the networks and cgroups.
//!
//! `cost run BPFFS-DIR CGROUP-ROOT KUBEPODS-PARENT NETNS-NAME CONNECTION-COUNT ROUND-COUNT` runs on the node.
//! It starts `cost ask ADDRESS:PORT CONNECTION-COUNT` in the pod.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use seawall_redirect::{
    AgentAddress, AgentHeartbeat, ConnectionMap, ConnectionOwner, HostNetworkPods, Pins, PodCgroups,
    PodsParentCgroup, TargetMap, attach, detach,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NODE: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 1);
const PROGRAMS: [&str; 3] = ["seawall4", "seawall6", "seawall_ops"];

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["ask", to, times] => ask(to.parse()?, times.parse()?),
        ["run", bpffs, tree, groups, network, times, rounds] => {
            let pod = InPod { groups: groups.into(), network: network.to_owned(), times: times.parse()? };
            run(Path::new(bpffs), Path::new(tree), &pod, rounds.parse()?)
        }
        _ => {
            Err("usage: cost run BPFFS-DIR CGROUP-ROOT KUBEPODS-PARENT NETNS-NAME CONNECTION-COUNT ROUND-COUNT\n       \
                 cost ask ADDRESS:PORT CONNECTION-COUNT"
                .into())
        }
    }
}

/// Sends requests one after the other, each on a new connection, and prints the mean time per request in nanoseconds.
fn ask(to: SocketAddr, times: u32) -> Outcome<()> {
    let begun = Instant::now();
    for _ in 0..times {
        let mut stream = TcpStream::connect(to)?;
        stream.write_all(b"?")?;
        stream.read_to_end(&mut Vec::new())?;
    }
    println!("{}", begun.elapsed().as_nanos() / u128::from(times));
    Ok(())
}

struct InPod {
    groups: PathBuf,
    network: String,
    times: u32,
}

impl InPod {
    fn group(&self) -> PathBuf {
        self.groups.join("kubepods/burstable/pod-of-cost/c")
    }

    /// Returns the mean time per connection in microseconds.
    fn ask(&self, to: &str) -> Outcome<f64> {
        let join =
            "echo 0 > \"$0/cgroup.procs\" && exec nsenter \"--net=/run/netns/$1\" \"$2\" ask \"$3\" \"$4\"";
        let program = std::env::current_exe()?;
        let mut command = Command::new("sh");
        command
            .args(["-c", join])
            .arg(self.group())
            .arg(&self.network)
            .arg(program)
            .args([to, &self.times.to_string()]);
        let said = command.output()?;
        let nanoseconds: f64 = String::from_utf8(said.stdout)?.trim().parse()?;
        Ok(nanoseconds / 1e3)
    }
}

/// The totals over all records taken from the map: their number, the time in nanoseconds, and the number with the right owner.
static TAKEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

fn answer(listener: &TcpListener, mut callers: Option<(ConnectionMap, u64)>) {
    for mut stream in listener.incoming().flatten() {
        // An error of one client must not end this loop.
        let _ = callers.as_mut().map_or(Ok(()), |(callers, pod)| taken(&stream, callers, *pod));
        let _ = answered(&mut stream);
    }
}

fn taken(stream: &TcpStream, callers: &mut ConnectionMap, pod: u64) -> Outcome<()> {
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let begun = Instant::now();
    let found = callers.take(ConnectionOwner::Pod(pod), peer, local)?;
    let took = u64::try_from(begun.elapsed().as_nanos())?;
    let known = u64::from(found.is_some_and(|caller| caller.pod_cgroup_id == pod));
    for (sum, value) in TAKEN.iter().zip([1, took, known]) {
        sum.fetch_add(value, Ordering::Relaxed);
    }
    Ok(())
}

fn answered(stream: &mut TcpStream) -> Outcome<()> {
    stream.read_exact(&mut [0; 1])?;
    Ok(stream.write_all(b"!")?)
}

/// Returns the number of calls and the time in nanoseconds of each program.
fn counted() -> [(u64, f64); 3] {
    let mut counted = [(0, 0.0); 3];
    for info in loaded_programs().flatten() {
        let Some(at) = PROGRAMS.iter().position(|name| info.name_as_str() == Some(name)) else { continue };
        counted[at] = (counted[at].0 + info.run_count(), counted[at].1 + info.run_time().as_nanos() as f64);
    }
    counted
}

/// Formats the cost per connection of connect4 and sockops: calls and microseconds.
fn per_connection(before: [(u64, f64); 3], times: u32) -> String {
    let after = counted();
    let cost = |at: usize| {
        let (calls, time) = (after[at].0 - before[at].0, after[at].1 - before[at].1);
        let times = f64::from(times);
        format!("{:.1} calls, {:.2} µs", calls as f64 / times, time / times / 1e3)
    };
    format!("connect4 {}; sockops {}", cost(0), cost(2))
}

fn run(bpffs: &Path, tree: &Path, pod: &InPod, rounds: u32) -> Outcome<()> {
    let pins = Pins::at(bpffs)?;
    let kubepods = pod.groups.join("kubepods");
    let site = PodsParentCgroup::find(tree, Some(kubepods.strip_prefix(tree)?))?
        .limit_conflict_check_to(&pod.groups);
    let (plain, target) = (TcpListener::bind((NODE, 0))?, TcpListener::bind((NODE, 0))?);
    let (beside, port) = (plain.local_addr()?.to_string(), target.local_addr()?.port());
    thread::spawn(move || answer(&plain, None));
    attach(&pins, &site, HostNetworkPods::Seawall)?;
    let mut gate = TargetMap::open(&pins, &site)?;
    let seat = gate.register_listener(&target)?;
    let mut heartbeat = AgentHeartbeat::open(&pins, seat)?;
    thread::spawn(move || {
        while heartbeat.beat().is_ok_and(|is_own| is_own) {
            thread::park_timeout(AgentHeartbeat::INTERVAL);
        }
    });
    gate.set_target(AgentAddress {
        v4: Some(NODE),
        metadata_port: NonZeroU16::new(port),
        listener_slot: seat,
        ..AgentAddress::default()
    })?;
    let callers = (ConnectionMap::open(&pins)?, pod.group().parent().ok_or("no pod")?.metadata()?.ino());
    thread::spawn(move || answer(&target, Some(callers)));
    // These rounds run without the kernel's statistics, which read the clock twice per call and so cost as much as a small program.
    let mut ways: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        detach_programs(&pins)?;
        ways[0].push(pod.ask(&beside)?);
        attach(&pins, &site, HostNetworkPods::Seawall)?;
        ways[1].push(pod.ask(&beside)?);
        ways[2].push(pod.ask("169.254.169.254:80")?);
    }
    report(&pins, &site, pod, &beside, &ways)?;
    Ok(detach(&pins)?)
}

/// Detaches the programs and keeps the maps with their open connections.
fn detach_programs(pins: &Pins) -> Outcome<()> {
    for entry in std::fs::read_dir(pins.directory())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains('-') {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn report(
    pins: &Pins,
    site: &PodsParentCgroup,
    pod: &InPod,
    beside: &str,
    ways: &[Vec<f64>; 3],
) -> Outcome<()> {
    let [bare, other, captured] = ways.each_ref().map(|way| median(way));
    // Print the minimum as well, because other processes on the machine can only make connections slower.
    let least = ways.each_ref().map(|way| way.iter().copied().fold(f64::INFINITY, f64::min));
    println!(
        "minimum, µs: no programs {:.1}; another address {:.1}; captured {:.1}\n",
        least[0], least[1], least[2]
    );
    println!("| one connection and request, medians | µs | compared with no programs |\n|---|---|---|");
    println!("| no programs | {bare:.1} | |");
    println!(
        "| programs attached, another address | {other:.1} | {:+.1} µs, {:.3} of that rate |",
        other - bare,
        bare / other
    );
    println!(
        "| captured and attested | {captured:.1} | {:+.1} µs, {:.3} of that rate |\n",
        captured - bare,
        bare / captured
    );
    let _statistics = enable_stats(Stats::RunTime)?;
    let before = counted();
    pod.ask(beside)?;
    println!("a pod's connection to another address: {}", per_connection(before, pod.times));
    let before = counted();
    pod.ask("169.254.169.254:80")?;
    println!("a captured connection: {}", per_connection(before, pod.times));
    let [times, nanoseconds, known] = TAKEN.each_ref().map(|sum| sum.load(Ordering::Relaxed));
    println!(
        "taking a record: {:.2} µs; {known} of {times} with the right owner",
        nanoseconds as f64 / times as f64 / 1e3
    );
    let begun = Instant::now();
    for _ in 0..1000 {
        PodCgroups::list(site)?;
    }
    println!(
        "listing {} pods: {:.0} µs",
        PodCgroups::list(site)?.len(),
        begun.elapsed().as_nanos() as f64 / 1e6
    );
    let begun = Instant::now();
    attach(pins, site, HostNetworkPods::Seawall)?;
    let again = begun.elapsed();
    detach(pins)?;
    let begun = Instant::now();
    attach(pins, site, HostNetworkPods::Seawall)?;
    println!(
        "attach: {:.1} ms; attach when already attached: {:.1} ms",
        begun.elapsed().as_nanos() as f64 / 1e6,
        again.as_nanos() as f64 / 1e6
    );
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
