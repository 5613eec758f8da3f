//! Client libraries' programs as processes of one pod.

use std::net::UdpSocket;
use std::process::Command;

use super::World;
use super::library::{Library, Names, Place, Run, start_all};
use super::network::Sandbox;

/// What runs in a pod's network.
pub(crate) struct Scene {
    pub(crate) runs: Vec<Run>,
    /// A name server in there that never says a word.
    _silence: UdpSocket,
}

impl Scene {
    /// Starts a program for each of these, with these variables in its environment.
    pub(crate) fn start(
        world: &World,
        sandbox: &Sandbox,
        libraries: &[Library],
        variables: &[(&str, &str)],
        steps: impl Fn(&Library) -> Vec<String>,
    ) -> Self {
        let silence = sandbox.run(|| UdpSocket::bind("127.0.0.1:53")).unwrap();
        let enter = |program: &str| -> Command { sandbox.command(program) };
        let names = Names::new(world.folder.path());
        let runs = start_all(libraries, &names, Place::Network(&enter, variables), steps);
        Self { runs, _silence: silence }
    }

    /// Reads all of them to their ends.
    pub(crate) fn finish(&mut self) {
        self.runs.iter_mut().for_each(Run::finish);
        // How often each had to ask, and how long it took.
        self.runs.iter().for_each(|run| eprintln!("{}", run.summary()));
    }
}
